#include "targets/openvino/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onw::openvino {
namespace {

using ::testing::HasSubstr;

// A child that is a script; $0 is the library, $1 the device where there is one.
Result<Probe> probe_with(const std::string& script, double seconds = 10) {
  return probe("/lib.so", {.program = {"/bin/sh", "-c", script}, .seconds = seconds});
}

constexpr const char* kTwoDevices =
    R"([ -n "$1" ] || echo '{"version":"2026.4","devices":[{"name":"CPU","FULL_DEVICE_NAME":"Some CPU"},{"name":"NPU"}]}';)";

TEST(OpenVinoProbe, gives_the_devices_and_what_they_say_of_themselves) {
  const auto found = probe_with(kTwoDevices);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->version, "2026.4");
  ASSERT_EQ(found->devices.size(), 2U);
  EXPECT_EQ(found->devices[0].facts[0], std::pair(std::string("FULL_DEVICE_NAME"), std::string("Some CPU")));
  EXPECT_EQ(found->devices[0].trouble, "");
}

TEST(OpenVinoProbe, a_device_whose_driver_crashes_takes_nobody_along) {
  const auto found = probe_with(std::string(kTwoDevices) + R"([ "$1" != NPU ] || kill -SEGV $$)");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->devices[0].trouble, "");
  EXPECT_THAT(found->devices[1].trouble, HasSubstr("crashed (Segmentation fault)"));
  EXPECT_THAT(found->devices[1].trouble, HasSubstr("driver"));
}

TEST(OpenVinoProbe, a_device_that_does_not_answer_is_given_up) {
  const auto found = probe_with(std::string(kTwoDevices) + R"([ "$1" != NPU ] || sleep 60)", 0.5);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->devices[1].trouble, HasSubstr("did not end within"));
}

TEST(OpenVinoProbe, what_a_child_complains_of_is_the_error) {
  const auto found = probe_with("echo 'onw: OpenVINO 2026.4: starting it: no plugins.xml' >&2; exit 1");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "OpenVINO 2026.4: starting it: no plugins.xml");
}

TEST(OpenVinoProbe, an_answer_that_is_none_is_an_error) {
  for (const char* script : {"true", "echo nonsense", "echo '[1]'", R"(echo '{"devices":[7]}')"})
    EXPECT_FALSE(probe_with(script)) << script;
}

TEST(OpenVinoProbe, the_CPU_device_of_OpenVINO_is_not_our_CPU_target) {
  EXPECT_EQ(device_name("CPU"), "openvino:CPU");
  EXPECT_EQ(openvino_device("openvino:CPU"), "CPU");
  EXPECT_EQ(device_name("NPU"), "NPU");
  EXPECT_EQ(openvino_device("GPU.0"), "GPU.0");
}

}  // namespace
}  // namespace onw::openvino
