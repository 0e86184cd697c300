#include "runtime/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onw {
namespace {

using ::testing::HasSubstr;

// A machine as it is told, and how often its devices were asked.
struct Machine {
  openvino::NpuMachine npu;
  std::string no_library;  // why there is no OpenVINO
  std::vector<openvino::DeviceFacts> devices;
  Result<bool> stand_in = false;
  int asked = 0;

  Result<DeviceChoice> choose(std::string_view device) {
    return choose_device(device, {.npu = [this] { return npu; },
                                  .library = [this]() -> Result<std::filesystem::path> {
                                    if (!no_library.empty()) return error(Code::not_found, "{}", no_library);
                                    return std::filesystem::path("/lib.so");
                                  },
                                  .probe = [this](const auto&, const std::string& only) -> Result<openvino::Probe> {
                                    ++asked;
                                    openvino::Probe probe{.version = "2026.4", .devices = devices};
                                    std::erase_if(probe.devices,
                                                  [&](const auto& d) { return !d.name.starts_with(only); });
                                    return probe;
                                  },
                                  .stand_in = stand_in});
  }
  std::string complaint(std::string_view device) {
    const auto choice = choose(device);
    return choice ? "it gives " + choice->device : choice.error().message;
  }
};

openvino::NpuMachine ready() {
  return {.name = "NPU generation 4000",
          .module = "1.0",
          .device = "/dev/accel/accel0",
          .device_opens = true,
          .has_driver = true,
          .has_loader = true};
}

openvino::DeviceFacts npu(const std::string& trouble = "") {
  return {.name = "NPU", .facts = {{"DEVICE_ARCHITECTURE", "4000"}}, .trouble = trouble};
}

TEST(ChooseDevice, by_default_is_the_NPU_where_one_works) {
  Machine machine{.npu = ready(), .devices = {npu()}};
  const auto choice = machine.choose("");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->device, "NPU");
  EXPECT_EQ(choice->platform, "4000");
  EXPECT_EQ(choice->library, "/lib.so");
  EXPECT_EQ(choice->reason, "the NPU works");
}

TEST(ChooseDevice, by_default_asks_nobody_where_the_machine_shows_no_NPU) {
  Machine machine{.devices = {npu()}};
  const auto choice = machine.choose("");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->device, "CPU");
  EXPECT_EQ(choice->reason, "this machine shows no NPU");
  EXPECT_EQ(machine.asked, 0);
}

TEST(ChooseDevice, by_default_is_the_CPU_with_the_reason_whatever_the_NPU_lacks) {
  Machine no_rights{.npu = ready(), .devices = {npu()}};
  no_rights.npu.device_opens = false;
  Machine no_openvino{.npu = ready(), .no_library = "OpenVINO is not there: pip install openvino"};
  Machine crashes{.npu = ready(), .devices = {npu("crashed (Segmentation fault)")}};
  Machine unseen{.npu = ready()};
  for (const auto& [machine, why] : {std::pair(&no_rights, "usermod -aG render"),
                                     {&no_openvino, "pip install openvino"},
                                     {&crashes, "crashed (Segmentation fault)"},
                                     {&unseen, "OpenVINO does not see it"}}) {
    const auto choice = machine->choose("");
    ASSERT_TRUE(choice) << why;
    EXPECT_EQ(choice->device, "CPU") << why;
    EXPECT_THAT(choice->reason, HasSubstr(why));
  }
}

// The same, where the user insists: an error with the remedy.
TEST(ChooseDevice, an_NPU_that_was_asked_for_and_does_not_work_is_an_error_with_what_to_do) {
  EXPECT_THAT(Machine{}.complaint("NPU"), HasSubstr("shows no NPU"));
  EXPECT_THAT(Machine{}.complaint("NPU"), HasSubstr("--device CPU"));
  Machine wsl;
  wsl.npu.is_wsl = true;
  EXPECT_THAT(wsl.complaint("NPU"), HasSubstr("WSL2"));
  Machine no_module{.npu = ready()};
  no_module.npu.module.clear();
  EXPECT_THAT(no_module.complaint("NPU"), HasSubstr("sudo modprobe intel_vpu"));
  EXPECT_EQ(no_module.asked, 0);  // nothing to find out
  Machine no_openvino{.npu = ready(), .no_library = "OpenVINO is not there: pip install openvino"};
  EXPECT_THAT(no_openvino.complaint("NPU"), HasSubstr("pip install openvino"));
  Machine crashes{.npu = ready(), .devices = {npu("crashed (Segmentation fault)")}};
  EXPECT_THAT(crashes.complaint("NPU"), HasSubstr("crashed (Segmentation fault)"));
  EXPECT_THAT(crashes.complaint("NPU"), HasSubstr("onw doctor"));
}

// In a container the bus is not always to be seen: who asks for the NPU gets it where OpenVINO has it.
TEST(ChooseDevice, an_NPU_that_only_OpenVINO_sees_is_taken_by_who_asks_for_it) {
  Machine machine{.devices = {npu()}};
  const auto choice = machine.choose("NPU");
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->device, "NPU");
  EXPECT_EQ(choice->reason, "");
}

TEST(ChooseDevice, a_stand_in_needs_no_NPU) {
  Machine machine{.devices = {{.name = "NPU", .facts = {}, .trouble = {}}}, .stand_in = true};
  for (const char* device : {"", "NPU"}) {
    const auto choice = machine.choose(device);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->device, "NPU");
    EXPECT_TRUE(choice->stand_in);
  }
}

TEST(ChooseDevice, a_stand_in_that_there_is_not_is_told_and_not_ignored) {
  Machine machine{.npu = ready(), .devices = {npu()}, .stand_in = error(Code::usage, "ONW_NPU_STAND_IN is 'GPU'")};
  for (const char* device : {"", "NPU"}) EXPECT_EQ(machine.complaint(device), "ONW_NPU_STAND_IN is 'GPU'");
  EXPECT_EQ(machine.complaint("CPU"), "it gives CPU");
}

TEST(ChooseDevice, a_GPU_is_one_of_Intels_that_works) {
  Machine machine{.devices = {{.name = "GPU.0", .facts = {}, .trouble = {}}}};
  const auto choice = machine.choose("GPU");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->platform, "GPU");
  machine.devices.clear();
  EXPECT_THAT(machine.complaint("GPU"), HasSubstr("intel-opencl-icd"));
}

TEST(ChooseDevice, those_of_this_machine_are_taken_as_they_are_named) {
  Machine machine;
  for (const char* device : {"CPU", "reference", "openvino:CPU"}) {
    const auto choice = machine.choose(device);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->device, device);
    EXPECT_EQ(choice->reason, "");
  }
  EXPECT_EQ(machine.asked, 0);
  EXPECT_THAT(machine.complaint("TPU"), HasSubstr("NPU, GPU, CPU, openvino:CPU, reference"));
}

}  // namespace
}  // namespace onw
