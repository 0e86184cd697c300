#include "targets/openvino/npu_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"

namespace onw::openvino {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// The files of a machine, one after the other: each takes the next obstacle away.
class FakeMachine {
 public:
  void put(const std::string& file, const std::string& text) {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text << "\n";
  }
  void put_npu(const std::string& id) {
    put("sys/bus/pci/devices/0000:00:0b.0/vendor", "0x8086");
    put("sys/bus/pci/devices/0000:00:0b.0/device", id);
    put("sys/bus/pci/devices/0000:00:0b.0/class", "0x120000");
  }
  NpuMachine look(bool opens = true) const {
    return look_at_npu({.root = folder_ / "", .opens = [opens](const fs::path&) { return opens; }});
  }

 private:
  TempFolder folder_;
};

TEST(NpuMachine, without_an_NPU_needs_no_advice) {
  FakeMachine machine;
  machine.put("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086");
  machine.put("sys/bus/pci/devices/0000:00:02.0/device", "0x64a0");
  EXPECT_EQ(npu_text(machine.look()), "none");
  EXPECT_EQ(npu_advice(machine.look()), "");
}

TEST(NpuMachine, tells_that_WSL2_has_none) {
  FakeMachine machine;
  machine.put("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2");
  EXPECT_THAT(npu_text(machine.look()), HasSubstr("WSL2"));
}

// npu-085
TEST(NpuMachine, names_the_first_obstacle_and_the_command_that_helps) {
  FakeMachine machine;
  machine.put_npu("0x643e");
  EXPECT_THAT(npu_text(machine.look()), HasSubstr("NPU generation 4000; not ready"));
  EXPECT_THAT(npu_advice(machine.look()), HasSubstr("sudo modprobe intel_vpu"));
  machine.put("sys/module/intel_vpu/version", "1.0.2");
  EXPECT_THAT(npu_advice(machine.look()), HasSubstr("dmesg"));
  machine.put("dev/accel/accel0", "");
  EXPECT_THAT(npu_advice(machine.look(false)), HasSubstr("/dev/accel/accel0 may not be used"));
  EXPECT_THAT(npu_advice(machine.look(false)), HasSubstr("sudo usermod -aG render $USER"));
  EXPECT_THAT(npu_advice(machine.look()), HasSubstr("intel-driver-compiler-npu"));
  machine.put("usr/lib/x86_64-linux-gnu/libze_intel_npu.so.1", "");
  EXPECT_THAT(npu_advice(machine.look()), HasSubstr("libze1"));
  machine.put("usr/lib/x86_64-linux-gnu/libze_loader.so.1", "");
  EXPECT_EQ(npu_advice(machine.look()), "");
  EXPECT_EQ(npu_text(machine.look()), "NPU generation 4000; kernel module 1.0.2, /dev/accel/accel0");
}

TEST(NpuMachine, knows_the_generations_and_admits_what_it_does_not_know) {
  for (const auto& [id, name] : {std::pair("0x7d1d", "NPU generation 3720"),
                                 {"0xad1d", "NPU generation 3720"},
                                 {"0xb03e", "NPU generation 5010"},
                                 {"0xffff", "an accelerator of Intel's, 0xffff"}}) {
    FakeMachine machine;
    machine.put_npu(id);
    EXPECT_EQ(machine.look().name, name);
  }
}

}  // namespace
}  // namespace onw::openvino
