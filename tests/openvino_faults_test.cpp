// What goes wrong with OpenVINO and its devices, by a library that does as it is told (tests/fake_openvino).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "targets/conformance_steps.h"
#include "targets/openvino/openvino.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result<std::shared_ptr<const openvino::Runtime>> load_fake() {
  return openvino::Runtime::load(this_program().parent_path() / "libfake_openvino.so");
}

class OpenVinoFaults : public ::testing::Test {
 protected:
  void SetUp() override { told(""); }
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
  static void told(const std::string& script) { ::setenv("ONW_FAKE_OPENVINO", script.c_str(), 1); }

  // A tiny model on the fake device.
  static Result<std::unique_ptr<Executable>> model() {
    nlohmann::json config = tiny_config("llama", 320);
    config["num_hidden_layers"] = 1;
    const RandomModel m = random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
    auto runtime = load_fake();
    RETURN_IF_ERROR(runtime);
    return make_openvino(m.program, m.weights, {.runtime = *runtime});
  }

  static Result<Outputs> one_row(Executable& target, Sequence& sequence) {
    Sequence* const only = &sequence;
    const Row row = text_row(0, sequence.length(), 3, true);
    return target.run({.sequences = {&only, 1}, .rows = {&row, 1}}, CancelToken());
  }
};

TEST_F(OpenVinoFaults, a_version_that_is_too_old_is_named_with_what_to_do) {
  told("version=2023.3.0-13775-ceeafaf64f3");
  const auto runtime = load_fake();
  ASSERT_FALSE(runtime);
  EXPECT_EQ(runtime.error().code, Code::unsupported);
  EXPECT_THAT(runtime.error().message, HasSubstr("this is OpenVINO 2023.3.0"));
  EXPECT_THAT(runtime.error().message, HasSubstr("onw needs 2025.0 or later"));
  EXPECT_THAT(runtime.error().message, HasSubstr("pip install openvino"));
}

TEST_F(OpenVinoFaults, a_newer_version_whose_types_have_other_numbers_is_taken) {
  told("version=2031.1.0");
  const auto runtime = load_fake();
  EXPECT_TRUE(runtime) << runtime.error().message;
}

TEST_F(OpenVinoFaults, a_plugin_that_does_not_load_is_told_in_its_own_words) {
  told("core=fail");
  const auto runtime = load_fake();
  ASSERT_FALSE(runtime);
  EXPECT_THAT(runtime.error().message, HasSubstr("starting it: no plugins.xml"));
  EXPECT_THAT(runtime.error().message, Not(HasSubstr("src/core.cpp")));
}

// npu-075
TEST_F(OpenVinoFaults, a_compilers_message_reaches_the_caller) {
  told("compile=fail");
  const auto target = model();
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::unsupported);
  EXPECT_THAT(target.error().message, HasSubstr("Compiler returned an error"));
}

// Numbers that cannot be are an error, not an answer.
TEST_F(OpenVinoFaults, logits_that_are_no_numbers_or_all_zero_are_no_answer) {
  const auto target = model();
  ASSERT_TRUE(target) << target.error().message;
  const auto sequence = new_sequence(**target);
  for (const char* how : {"infer=nan", "infer=zero"}) {
    told(how);
    const auto out = one_row(**target, *sequence);
    ASSERT_FALSE(out) << how;
    EXPECT_EQ(out.error().code, Code::numerics) << how;
    EXPECT_EQ(sequence->length(), 0) << how;
  }
  told("");
  EXPECT_TRUE(one_row(**target, *sequence));
}

TEST_F(OpenVinoFaults, a_lost_device_leaves_the_sequence_as_it_was) {
  const auto target = model();
  ASSERT_TRUE(target) << target.error().message;
  const auto sequence = new_sequence(**target);
  ASSERT_TRUE(one_row(**target, *sequence));
  sequence->commit(1);
  told("infer=lost");
  const auto out = one_row(**target, *sequence);
  ASSERT_FALSE(out);
  EXPECT_THAT(out.error().message, HasSubstr("DEVICE_LOST"));
  EXPECT_EQ(sequence->length(), 1);
  told("");
  EXPECT_TRUE(one_row(**target, *sequence));
}

}  // namespace
}  // namespace onw::testing
