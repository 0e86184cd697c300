#include "convert/choose_format.h"

#include <algorithm>
#include <array>

#include "convert/read_rows.h"
#include "quant/quantise.h"
#include "store/runs_on.h"

namespace onw {
namespace {

using enum WeightFormat;

// What comes nearest to a block type that has no format of its own here.
struct Nearest {
  BlockType type;
  WeightFormat format;
};
constexpr std::array kNearest = {
    Nearest{BlockType::q2_k, q4g32m}, Nearest{BlockType::q3_k, q4g32},      Nearest{BlockType::q6_k, q8g32},
    Nearest{BlockType::f32, f32},     Nearest{BlockType::f64, f32},         Nearest{BlockType::f16, f16},
    Nearest{BlockType::bf16, bf16},   Nearest{BlockType::affine_q8, q8g32},
};

WeightFormat taken_or_nearest(BlockType type) {
  if (const auto taken = taken_over_format(type)) return *taken;
  return std::ranges::find(kNearest, type, &Nearest::type)->format;
}

// A format for matrices, as it is used for this role: heads get 8 bits where matrices have fewer, tables that only the
// host looks up 4 bits in groups of 32.
WeightFormat for_role(WeightFormat asked, WeightRole role, bool tied) {
  const FormatInfo& f = info(asked);
  if (f.plain() || role == WeightRole::matrix || role == WeightRole::expert) return asked;
  const bool host_only = role == WeightRole::lookup || (role == WeightRole::embedding && !tied);
  if (host_only && f.bits < 8) return e4g32;
  return f.bits < 8 ? q8c : asked;
}

// What the device takes instead of a format that it refuses, before the width decides about groups.
WeightFormat for_device(WeightFormat format, std::string_view made_for) {
  if (made_for == "cpu" || support(format, "npu") != Support::refused) return format;
  return info(format).bits > 5 ? q8g128 : q4g128;
}

// Routers keep the published precision where it is a plain one: a step of theirs chooses other experts.
FormatChoice router_format(BlockType source_type, const FormatRequest& request) {
  FormatChoice choice;
  if (source_type == BlockType::f16) choice.format = f16;
  if (source_type == BlockType::bf16) choice.format = bf16;
  choice.layout = request.made_for == "cpu" ? Layout::tiles : Layout::rows;
  return choice;
}

}  // namespace

FormatChoice choose_format(const WeightDecl& weight, BlockType source_type, bool source_quantised,
                           const FormatRequest& request) {
  const bool is_expert = weight.role == WeightRole::expert;
  if (weight.role == WeightRole::vector || (is_expert && weight.shape.size() == 2)) return {};
  if (weight.role == WeightRole::router) return router_format(source_type, request);
  FormatChoice choice;
  const int64_t inputs = weight.shape.back();
  const bool host_only = weight.role == WeightRole::lookup || (weight.role == WeightRole::embedding && !request.tied);
  choice.layout = request.made_for == "cpu" && !host_only ? Layout::tiles : Layout::rows;

  const auto refused = [&](WeightFormat format) {
    choice.why = fmt::format("{} does not run on the NPU", name(format));
  };
  const WeightFormat own =
      !request.format && source_quantised
          ? taken_or_nearest(source_type)
          : for_role(request.format.value_or(is_expert && request.made_for == "npu" ? q4c : q4g128), weight.role,
                     request.tied);
  const WeightFormat wanted = for_device(own, request.made_for);
  if (wanted != own) refused(own);
  choice.format = fit(wanted, inputs);
  if (for_device(choice.format, request.made_for) != choice.format) {  // the width leaves only groups of 32
    refused(choice.format);
    choice.format = q8c;
  }
  if (info(choice.format).plain() && !info(wanted).plain())
    choice.why = fmt::format("neither 128, 64 nor 32 divides {} inputs", inputs);
  choice.take_over = taken_over_format(source_type) == choice.format;
  if (weight.role == WeightRole::head || (weight.role == WeightRole::embedding && request.tied))
    choice.least_scale = kLeastHeadScale;
  return choice;
}

Result<WeightFormat> parse_format_option(std::string_view asked) {
  const auto format = weight_format(asked);
  if (format && *format != e4g32) return *format;
  std::string known;
  for (const FormatInfo& f : all_formats())
    if (f.format != e4g32) known += fmt::format("{}{}", known.empty() ? "" : ", ", f.name);
  return error(Code::usage, "--format '{}': {}. Formats: {}", asked,
               format ? "not possible for whole models" : "unknown", known);
}

Result<std::string> parse_device_class(std::string_view asked) {
  if (asked == "cpu" || asked == "npu") return std::string(asked);
  return error(Code::usage, "--for '{}': unknown. Devices: cpu, npu", asked);
}

}  // namespace onw
