// What OpenVINO offers on this machine, found out in a child process: drivers have crashed programs that only asked for
// the devices.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace onw::openvino {

struct DeviceFacts {
  std::string name;                                        // as OpenVINO calls it: "CPU", "GPU.0", "NPU"
  std::vector<std::pair<std::string, std::string>> facts;  // properties that it has: FULL_DEVICE_NAME, ...
  std::string trouble;                                     // why a small graph does not run; empty where it does
};

struct Probe {
  std::string version;
  std::vector<DeviceFacts> devices;
};

// The word by which onw starts itself for a probe, with the library and, for a small graph, a device behind it.
inline constexpr std::string_view kProbeCommand = "openvino-probe";

// What the child does: the devices as JSON, or a small graph on one of them. Errors: those of Runtime.
Result<std::string> examine(const std::filesystem::path& library);
Result<std::string> run_small_graph(const std::filesystem::path& library, const std::string& device);

struct ProbeOptions {
  std::vector<std::string> program;  // what starts the child: {"/usr/bin/onw", "openvino-probe"}
  double seconds = 60;               // for each child; compiling for an NPU takes some seconds
  std::string only = {};             // tries the devices alone whose name begins so
};

// Asks in one child, then tries each device in another. Errors: unsupported with what the child said, or how it ended.
Result<Probe> probe(const std::filesystem::path& library, const ProbeOptions& options);

// The device names that onw has are OpenVINO's, but for its CPU device.
std::string device_name(const std::string& openvino_name);    // "openvino:CPU", "NPU", "GPU.0"
std::string openvino_device(const std::string& device_name);  // the other way

}  // namespace onw::openvino
