#include "targets/openvino/routes.h"

#include <algorithm>

namespace onw::openvino {
namespace {

using Property = std::pair<std::string_view, std::string_view>;

constexpr Property kDriver[] = {{"NPU_COMPILER_TYPE", "DRIVER"}};
constexpr Property kPlugin[] = {{"NPU_COMPILER_TYPE", "PLUGIN"}};
// On 5010 the head runs 2.7 times faster so, whatever its profile is good for.
constexpr Property kProfiled[] = {{"PERF_COUNT", "YES"}};

// Without weights: on 4000 and later FP16, INT8 and NF4 stay apart, INT4 and 2 bits do not.
constexpr Property kApart[] = {{"NPU_COMPILER_TYPE", "PLUGIN"}, {"CACHE_MODE", "OPTIMIZE_SIZE"}};
constexpr Property kSmall[] = {{"CACHE_MODE", "OPTIMIZE_SIZE"}};
constexpr std::string_view kKeptInside[] = {"\"i4\"", "\"u4\"", "\"u2\""};
constexpr int64_t kWorthIt = 1'000'000;

constexpr Route kDriverFirst[] = {{"the driver's compiler", kDriver}, {"the plugin's compiler", kPlugin}};
constexpr Route kPluginFirst[] = {
    {.name = "the plugin's compiler, without weights", .properties = kApart, .without_weights = true},
    {"the plugin's compiler", kPlugin},
    {"the driver's compiler", kDriver}};
constexpr Route kFor5010[] = {{.name = "the plugin's compiler, without weights, the head profiled",
                               .properties = kApart,
                               .head_properties = kProfiled,
                               .without_weights = true},
                              {"the plugin's compiler, the head profiled", kPlugin, kProfiled},
                              {"the plugin's compiler", kPlugin},
                              {"the driver's compiler", kDriver}};
constexpr Route kAsItIs[] = {{"as it is"}};
constexpr Route kSmallFirst[] = {{.name = "without weights", .properties = kSmall, .without_weights = true},
                                 {"as it is"}};

constexpr int64_t kNpuChild = 2'500'000'000;  // measured with compilers of 2026
constexpr int64_t kOtherChild = 300'000'000;

constexpr PlatformRoutes kPlatforms[] = {
    // Its compiler in the driver makes graphs that are some 7 % faster.
    {.platform = "3720", .routes = kDriverFirst, .child_bytes = kNpuChild},
    {.platform = "4000", .routes = kPluginFirst, .child_bytes = kNpuChild},
    {.platform = "5010", .routes = kFor5010, .child_bytes = kNpuChild},
    {.platform = "GPU", .routes = kSmallFirst, .child_bytes = kOtherChild},
    // The NPU's plugin with OpenVINO's CPU device behind it, for tests: its blobs hold the weights, too.
    {.platform = "stand-in", .routes = kAsItIs, .child_bytes = kOtherChild},
    // A blob of this device holds the weights once more, and importing packs them anew: it saves no time, and costs
    // the disk (docs/architecture.md has the figures).
    {.platform = "CPU", .routes = kAsItIs, .child_bytes = kOtherChild, .imports_by_device = true, .stores = false},
};

}  // namespace

const PlatformRoutes& routes_for(std::string_view platform) {
  const auto named = [](std::string_view name) {
    return &*std::ranges::find(kPlatforms, name, &PlatformRoutes::platform);
  };
  const auto found = std::ranges::find(kPlatforms, platform, &PlatformRoutes::platform);
  if (found != std::end(kPlatforms)) return *found;
  if (platform.starts_with("NPU")) return *named("5010");
  return platform.starts_with("GPU") ? *named("GPU") : *named("CPU");
}

bool suits(const Route& route, std::string_view xml, int64_t constant_bytes) {
  if (!route.without_weights) return true;
  return constant_bytes >= kWorthIt && std::ranges::none_of(kKeptInside, [&](std::string_view type) {
           return xml.find(type) != std::string_view::npos;
         });
}

Properties route_properties(const Route& route, bool is_head, Properties common) {
  const auto put = [&](std::span<const Property> more) {
    for (const auto& [name, value] : more) {
      const auto there = std::ranges::find(common, name, &std::pair<std::string, std::string>::first);
      if (there != common.end())
        there->second = value;
      else
        common.emplace_back(name, value);
    }
  };
  put(route.properties);
  if (is_head) put(route.head_properties);
  return common;
}

}  // namespace onw::openvino
