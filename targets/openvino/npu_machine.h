// What this machine says of its NPU, from the processor's bus to the driver's libraries, and the next thing to do.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace onw::openvino {

struct NpuMachine {
  std::string name;    // "NPU generation 4000"; empty: this machine shows none
  std::string module;  // version of the kernel's module, "loaded" where it names none; empty: not loaded
  std::string device;  // "/dev/accel/accel0"; empty: none
  bool device_opens = false;
  bool has_driver = false;  // libze_intel_npu
  bool has_loader = false;  // libze_loader
  bool is_wsl = false;
};

struct NpuPlaces {
  std::filesystem::path root = "/";
  std::function<bool(const std::filesystem::path&)> opens;  // for reading and writing
};

NpuMachine look_at_npu(const NpuPlaces& places);
NpuMachine look_at_npu();

// One line for a table; and what to do, the first obstacle alone: the others may go with it.
std::string npu_text(const NpuMachine& machine);
std::string npu_advice(const NpuMachine& machine);

}  // namespace onw::openvino
