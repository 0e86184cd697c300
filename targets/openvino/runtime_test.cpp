#include "targets/openvino/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "targets/openvino/probe.h"
#include "targets/openvino/testing.h"

namespace onw::openvino {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class WithOpenVinoRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = onw::testing::openvino_runtime();
    if (runtime_ == nullptr) GTEST_SKIP() << onw::testing::kNoOpenVino;
  }
  std::shared_ptr<const Runtime> runtime_;
};

TEST_F(WithOpenVinoRuntime, has_a_version_and_a_CPU_device) {
  EXPECT_GE(release_of(runtime_->version()), std::pair(2025, 0)) << runtime_->version();
  const auto devices = runtime_->devices();
  ASSERT_TRUE(devices) << devices.error().message;
  EXPECT_THAT(*devices, Contains("CPU"));
  const auto name = runtime_->property("CPU", "FULL_DEVICE_NAME");
  ASSERT_TRUE(name) << name.error().message;
  EXPECT_NE(*name, "");
}

TEST_F(WithOpenVinoRuntime, runs_a_small_graph) {
  const auto ran = run_small_graph(runtime_->library(), "CPU");
  EXPECT_TRUE(ran) << ran.error().message;
}

TEST_F(WithOpenVinoRuntime, makes_tensors_of_every_type_over_our_memory) {
  std::array<float, 4> memory = {};
  const std::array<int64_t, 1> shape = {4};
  for (const DType type : {DType::f32, DType::f16, DType::i8, DType::u8, DType::i4, DType::i32}) {
    const auto tensor = runtime_->tensor(type, shape, memory.data());
    EXPECT_TRUE(tensor) << tensor.error().message;
  }
}

TEST_F(WithOpenVinoRuntime, errors_carry_the_librarys_own_message_without_its_source_lines) {
  const auto compiled = runtime_->compile("<net/>", Tensor(), "CPU", {});
  ASSERT_FALSE(compiled);
  EXPECT_THAT(compiled.error().message, HasSubstr("OpenVINO 20"));
  EXPECT_THAT(compiled.error().message, Not(HasSubstr("Exception from")));
  const auto absent = runtime_->property("XPU", "FULL_DEVICE_NAME");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("XPU"));
}

}  // namespace
}  // namespace onw::openvino
