#include "targets/openvino/npu_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;

// The first line of a small file of the system's; empty where there is none.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (auto it = fs::directory_iterator(folder, failure); !failure && it != fs::directory_iterator();
       it.increment(failure))
    found.push_back(it->path());
  std::ranges::sort(found);
  return found;
}

// Devices on the bus as the kernel's intel_vpu knows them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kDevices = {{{"0x7d1d", "NPU generation 3720"},
                                                                                    {"0xad1d", "NPU generation 3720"},
                                                                                    {"0x643e", "NPU generation 4000"},
                                                                                    {"0xb03e", "NPU generation 5010"}}};
constexpr std::string_view kIntel = "0x8086", kAccelerator = "0x1200";

std::string name_of_npu(const fs::path& root) {
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
    if (line_of(device / "vendor") != kIntel) continue;
    const std::string id = line_of(device / "device");
    const auto known = std::ranges::find(kDevices, id, &std::pair<std::string_view, std::string_view>::first);
    if (known != kDevices.end()) return std::string(known->second);
    if (line_of(device / "class").starts_with(kAccelerator)) return fmt::format("an accelerator of Intel's, {}", id);
  }
  return "";
}

bool has_library(const fs::path& root, std::string_view beginning) {
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"})
    for (const fs::path& file : entries(root / folder))
      if (file.filename().string().starts_with(beginning)) return true;
  return false;
}

}  // namespace

NpuMachine look_at_npu(const NpuPlaces& places) {
  NpuMachine m;
  const std::string kernel = line_of(places.root / "proc/version");
  m.is_wsl = kernel.find("microsoft") != std::string::npos || kernel.find("WSL2") != std::string::npos;
  m.name = name_of_npu(places.root);
  std::error_code failure;
  if (fs::exists(places.root / "sys/module/intel_vpu", failure)) {
    m.module = line_of(places.root / "sys/module/intel_vpu/version");
    if (m.module.empty()) m.module = "loaded";
  }
  for (const fs::path& device : entries(places.root / "dev/accel")) {
    m.device = "/" + device.lexically_relative(places.root).string();
    m.device_opens = places.opens(device);
    break;
  }
  m.has_driver = has_library(places.root, "libze_intel_npu.so") || has_library(places.root, "libze_intel_vpu.so");
  m.has_loader = has_library(places.root, "libze_loader.so");
  return m;
}

NpuMachine look_at_npu() {
  return look_at_npu({.root = "/", .opens = [](const fs::path& path) {
                        return std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).is_open();
                      }});
}

std::string npu_text(const NpuMachine& m) {
  if (m.name.empty()) return m.is_wsl ? "none: WSL2 passes none on" : "none";
  if (!npu_advice(m).empty()) return m.name + "; not ready, see below";
  return fmt::format("{}; kernel module {}, {}", m.name, m.module, m.device);
}

std::string npu_advice(const NpuMachine& m) {
  if (m.name.empty()) return "";
  if (m.module.empty())
    return fmt::format("{}: the kernel's module is not loaded: sudo modprobe intel_vpu (Linux 6.8 or later has it)",
                       m.name);
  if (m.device.empty())
    return fmt::format(
        "{}: the kernel made no /dev/accel/accel0. Install the firmware (package firmware-misc-nonfree or "
        "linux-firmware), and look at: sudo dmesg | grep intel_vpu",
        m.name);
  if (!m.device_opens)
    return fmt::format("{}: {} may not be used: sudo usermod -aG render $USER, then log in again", m.name, m.device);
  if (!m.has_driver)
    return fmt::format(
        "{}: its driver is missing (libze_intel_npu): install Intel's packages intel-level-zero-npu and "
        "intel-driver-compiler-npu",
        m.name);
  if (!m.has_loader)
    return fmt::format("{}: Level Zero's loader is missing (libze_loader): sudo apt install libze1", m.name);
  return "";
}

}  // namespace onw::openvino
