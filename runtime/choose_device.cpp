#include "runtime/choose_device.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/child_process.h"
#include "base/digest.h"
#include "base/output_file.h"
#include "base/paths.h"
#include "graph/json.h"
#include "targets/openvino/find.h"
#include "targets/openvino/platforms.h"
#include "targets/openvino/stand_in.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDevices[] = {"NPU", "GPU", "CPU", "openvino:CPU", "reference"};

constexpr const char* kStandIn = "ONW_NPU_STAND_IN puts OpenVINO's CPU device in the NPU's place";

std::string fact(const openvino::DeviceFacts& device, std::string_view name) {
  const auto found = std::ranges::find(device.facts, name, &std::pair<std::string, std::string>::first);
  return found == device.facts.end() ? "" : found->second;
}

// The device of a probe, where it runs a small graph.
Result<openvino::DeviceFacts> working(const openvino::Probe& probe, std::string_view device, const std::string& none) {
  const auto found =
      std::ranges::find_if(probe.devices, [&](const auto& d) { return std::string_view(d.name).starts_with(device); });
  if (found == probe.devices.end()) return error(Code::unsupported, "{}", none);
  if (!found->trouble.empty())
    return error(Code::unsupported, "{} is there, but does not work: {}. onw doctor says more; --device CPU works",
                 device, found->trouble);
  return *found;
}

std::string no_npu(const openvino::NpuMachine& machine) {
  if (machine.is_wsl)
    return "no NPU: WSL2 passes none on. Run onw under Windows or Linux themselves, or take --device CPU";
  if (machine.name.empty())
    return "this machine shows no NPU (Intel's Core Ultra processors have one; a container needs --device /dev/accel). "
           "Take --device CPU";
  return fmt::format(
      "{}: OpenVINO does not see it. Install Intel's packages intel-level-zero-npu and intel-driver-compiler-npu in a "
      "newer version, or take --device CPU; onw doctor says more",
      machine.name);
}

Result<DeviceChoice> choose_npu(const DeviceWorld& world) {
  RETURN_IF_ERROR(world.stand_in);
  const openvino::NpuMachine machine = world.npu();
  if (!*world.stand_in)
    if (const std::string advice = openvino::npu_advice(machine); !advice.empty())
      return error(Code::unsupported, "{}. --device CPU works without", advice);
  const auto library = world.library();
  RETURN_IF_ERROR(library);
  const auto probe = world.probe(*library, "NPU");
  RETURN_IF_ERROR(probe);
  const auto device = working(*probe, "NPU", no_npu(machine));
  RETURN_IF_ERROR(device);
  const openvino::Platform& platform = openvino::npu_platform(fact(*device, "DEVICE_ARCHITECTURE"), machine.name);
  return DeviceChoice{.device = "NPU",
                      .platform = std::string(platform.name),
                      .reason = *world.stand_in ? kStandIn : "",
                      .library = *library,
                      .stand_in = *world.stand_in};
}

Result<DeviceChoice> choose_gpu(const DeviceWorld& world) {
  const auto library = world.library();
  RETURN_IF_ERROR(library);
  const auto probe = world.probe(*library, "GPU");
  RETURN_IF_ERROR(probe);
  const auto device = working(*probe, "GPU",
                              "OpenVINO sees no GPU of Intel's here. Install its driver (package intel-opencl-icd), or "
                              "take --device CPU");
  RETURN_IF_ERROR(device);
  return DeviceChoice{.device = "GPU", .platform = "GPU", .reason = {}, .library = *library};
}

Result<DeviceChoice> choose_default(const DeviceWorld& world) {
  RETURN_IF_ERROR(world.stand_in);
  if (!*world.stand_in && world.npu().name.empty())
    return DeviceChoice{.device = "CPU", .platform = {}, .reason = "this machine shows no NPU"};
  auto npu = choose_npu(world);
  if (!npu)
    return DeviceChoice{
        .device = "CPU", .platform = {}, .reason = fmt::format("the NPU does not work: {}", npu.error().message)};
  if (!*world.stand_in) npu->reason = "the NPU works";
  return std::move(*npu);
}

// What probes found to work, so that the next start within the hour asks nobody. What does not work is asked again:
// somebody is mending it.
class KnownToWork {
 public:
  KnownToWork(const fs::path& library, const std::string& device, const openvino::NpuMachine& machine) {
    std::error_code failure;
    const auto written = fs::last_write_time(library, failure).time_since_epoch().count();
    const std::string key = fmt::format("1\n{}\n{}\n{}\n{}\n{}", library.string(), written, device,
                                        openvino::npu_text(machine), openvino::stands_in_for_npu());
    file_ = cache_folder() / "devices" / (sha256_hex(key).substr(0, 32) + ".json");
  }

  std::optional<openvino::Probe> read() const {
    const auto json = read_json_file(file_);
    if (!json || !json->is_object()) return std::nullopt;
    const int64_t age = now() - json->value("at", int64_t{0});
    if (age < 0 || age > kSeconds) return std::nullopt;
    openvino::Probe probe{.version = json->value("version", ""), .devices = {}};
    probe.devices.push_back({.name = json->value("name", ""), .facts = {}, .trouble = {}});
    probe.devices.back().facts.emplace_back("DEVICE_ARCHITECTURE", json->value("architecture", ""));
    return probe;
  }

  void write(const openvino::Probe& probe, std::string_view device) const {
    const auto found = working(probe, device, "");
    if (!found) return;
    std::error_code ignored;
    fs::create_directories(file_.parent_path(), ignored);
    const nlohmann::json json = {{"at", now()},
                                 {"version", probe.version},
                                 {"name", found->name},
                                 {"architecture", fact(*found, "DEVICE_ARCHITECTURE")}};
    (void)write_file_atomically(file_, dump_json(json));
  }

 private:
  static constexpr int64_t kSeconds = 3600;
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  fs::path file_;
};

Result<openvino::Probe> probe_remembered(const fs::path& library, const std::string& device) {
  static std::mutex mutex;
  static std::map<std::string, Result<openvino::Probe>> asked;  // by library and device
  const std::lock_guard lock(mutex);
  const std::string key = library.string() + '\n' + device;
  if (const auto found = asked.find(key); found != asked.end()) return found->second;
  const KnownToWork known(library, device, openvino::look_at_npu());
  if (auto probe = known.read()) return asked.emplace(key, std::move(*probe)).first->second;
  auto probe = openvino::probe(
      library, {.program = {this_program().string(), std::string(openvino::kProbeCommand)}, .only = device});
  if (probe) known.write(*probe, device);
  return asked.emplace(key, std::move(probe)).first->second;
}

}  // namespace

DeviceWorld this_machine() {
  return {.npu = [] { return openvino::look_at_npu(); },
          .library = [] { return openvino::find_library(openvino::search_places()); },
          .probe = probe_remembered,
          .stand_in = openvino::npu_stand_in()};
}

Result<DeviceChoice> choose_device(std::string_view asked, const DeviceWorld& world) {
  if (asked.empty()) return choose_default(world);
  if (asked == "NPU") return choose_npu(world);
  if (asked == "GPU") return choose_gpu(world);
  if (asked == "openvino:CPU") {
    const auto library = world.library();
    RETURN_IF_ERROR(library);
    return DeviceChoice{.device = "openvino:CPU", .platform = "openvino:CPU", .reason = {}, .library = *library};
  }
  if (std::ranges::find(kDevices, asked) == std::end(kDevices))
    return error(Code::unsupported, "there is no device '{}': take one of {}", asked, fmt::join(kDevices, ", "));
  return DeviceChoice{.device = std::string(asked), .platform = {}, .reason = {}};
}

Result<DeviceChoice> choose_device(std::string_view asked) { return choose_device(asked, this_machine()); }

}  // namespace onw
