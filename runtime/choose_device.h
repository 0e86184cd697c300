// Which device answers: the one that was asked for, else the NPU where one works, else the CPU.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "targets/openvino/npu_machine.h"
#include "targets/openvino/probe.h"

namespace onw {

struct DeviceChoice {
  std::string device;    // "NPU", "GPU", "openvino:CPU", "CPU", "reference"
  std::string platform;  // for OpenVINO: a row of targets/openvino/platforms.h, "4000"
  std::string reason;    // why, for people; empty for a device that was asked for and is what it is called
  std::filesystem::path library = {};  // OpenVINO's, where it is needed
  bool stand_in = false;               // the NPU plugin's path, with the CPU in the NPU's place
};

// What is asked of the machine. Devices are asked in child processes.
struct DeviceWorld {
  std::function<openvino::NpuMachine()> npu;
  std::function<Result<std::filesystem::path>()> library;
  std::function<Result<openvino::Probe>(const std::filesystem::path& library, const std::string& device)> probe;
  Result<bool> stand_in = false;  // ONW_NPU_STAND_IN=CPU; an error for another value
};
// This machine's. What a probe finds to work is believed for an hour, in the cache; and asked once a process.
DeviceWorld this_machine();

// `asked`: a name as above, or empty for the default, which asks nobody where the machine shows no NPU. Errors: usage
// for a wrong variable; where a device was asked for, unsupported for another name, or a device that does not work,
// with what to do; not_found where OpenVINO is missing, with how to get it.
Result<DeviceChoice> choose_device(std::string_view asked, const DeviceWorld& world);
Result<DeviceChoice> choose_device(std::string_view asked);

}  // namespace onw
