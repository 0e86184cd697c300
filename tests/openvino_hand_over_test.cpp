// The OpenVINO target behind the CPU, on a library that does as it is told (tests/fake_openvino): whatever is wrong
// with OpenVINO, its plugins or its devices, the answer is the CPU's, and the user is told what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "runtime/hand_over.h"
#include "targets/conformance_steps.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/openvino/openvino.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;

class OpenVinoHandOver : public ::testing::Test {
 protected:
  OpenVinoHandOver()
      : model_([] {
          nlohmann::json config = tiny_config("llama", 320);
          config["num_hidden_layers"] = 1;
          return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
        }()),
        tiled_(*cpu::tiled_in_memory(model_.program, model_.weights)) {}
  ~OpenVinoHandOver() override { ::unsetenv("ONW_FAKE_OPENVINO"); }

  // Only while no device is being made: its thread reads the script.
  static void told(const std::string& script) { ::setenv("ONW_FAKE_OPENVINO", script.c_str(), 1); }

  std::unique_ptr<Executable> cpu() const {
    auto target = make_cpu(model_.program, tiled_, {.kv = KvFormat::int8, .max_step_rows = 16});
    EXPECT_TRUE(target) << target.error().message;
    return std::move(*target);
  }

  void begin(const std::string& script, bool insisted = false) {
    told(script);
    auto status = std::make_shared<DeviceStatus>([this](const std::string& text) { notices_ += text + "\n"; });
    const auto maker = [this](const Making& making) -> Result<std::unique_ptr<Executable>> {
      const auto runtime = openvino::Runtime::load(this_program().parent_path() / "libfake_openvino.so");
      RETURN_IF_ERROR(runtime);
      return make_openvino(
          model_.program, model_.weights,
          {.runtime = *runtime, .kv = KvFormat::f16, .max_step_rows = 16, .on_compiled = making.progress});
    };
    pair_ = make_hand_over(cpu(), maker, {.insisted = insisted, .status = status});
    pair_->wait_until_made();
  }

  // Twenty tokens, whose logits are those of the CPU alone.
  void expect_the_answer_of_the_cpu() {
    const auto alone = cpu();
    const auto sequence = new_sequence(*pair_);
    const auto tokens = some_tokens(*pair_, 20, 3);
    const auto expected = logits_of(*alone, tokens, 1);
    for (int64_t i = 0; i < 20; ++i)
      ASSERT_TRUE(same_bits(extend(*pair_, *sequence, part(tokens, i, 1))[0], expected[static_cast<size_t>(i)])) << i;
  }

  RandomModel model_;
  WeightSet tiled_;
  std::string notices_;
  std::unique_ptr<HandOver> pair_;
};

// What keeps a device from being made, and what of it the user is told.
struct NotMade {
  const char* script;
  std::vector<std::string> told;
};

class OpenVinoNotMade : public OpenVinoHandOver, public ::testing::WithParamInterface<NotMade> {};
INSTANTIATE_TEST_SUITE_P(
    Scripts, OpenVinoNotMade,
    ::testing::Values(NotMade{"version=2023.3.0",
                              {"this is OpenVINO 2023.3.0, onw needs 2025.0", "pip install openvino"}},
                      NotMade{"core=fail", {"starting it: no plugins.xml"}},
                      NotMade{"compile=fail", {"compiling for CPU", "Compiler returned an error"}}));

TEST_P(OpenVinoNotMade, leaves_the_answer_to_the_cpu_and_says_why) {
  begin(GetParam().script);
  expect_the_answer_of_the_cpu();
  EXPECT_THAT(notices_, HasSubstr("The CPU answers, without the NPU: "));
  for (const std::string& text : GetParam().told) EXPECT_THAT(notices_, HasSubstr(text));
}

TEST_P(OpenVinoNotMade, is_an_error_for_who_insists) {
  begin(GetParam().script, true);
  const auto sequence = new_sequence(*pair_);
  Sequence* const only = sequence.get();
  const Row row = text_row(0, 0, 1, true);
  const auto out = pair_->run({.sequences = {&only, 1}, .rows = {&row, 1}}, CancelToken());
  ASSERT_FALSE(out);
  for (const std::string& text : GetParam().told) EXPECT_THAT(notices_, HasSubstr(text));
  EXPECT_THAT(out.error().message, HasSubstr("--device CPU, which answers without it"));
}

TEST_F(OpenVinoHandOver, a_newer_version_is_taken) {
  begin("version=2031.1.0");
  const auto sequence = new_sequence(*pair_);
  extend(*pair_, *sequence, {1, 2, 3});
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
  EXPECT_EQ(pair_->report().device_steps, 1);
  EXPECT_THAT(notices_, HasSubstr("keys and values go from int8 to f16"));
}

TEST_F(OpenVinoHandOver, logits_that_are_no_numbers_or_all_zero_are_computed_again) {
  for (const char* how : {"infer=nan", "infer=zero"}) {
    begin(how);
    expect_the_answer_of_the_cpu();
    EXPECT_EQ(pair_->report().wrong_steps, 1) << how;
    EXPECT_EQ(pair_->report().state, DeviceState::ready) << how;
  }
}

TEST_F(OpenVinoHandOver, a_device_that_vanishes_and_does_not_come_back_is_given_up) {
  begin("infer=lost");
  expect_the_answer_of_the_cpu();
  pair_->wait_until_made();
  expect_the_answer_of_the_cpu();
  EXPECT_EQ(pair_->report().losses, 2);
  EXPECT_THAT(notices_, HasSubstr("The NPU was lost (OpenVINO 2026.4.1-fake: running: ZE_RESULT_ERROR_DEVICE_LOST)"));
  EXPECT_THAT(notices_, HasSubstr("The CPU answers, without the NPU: it was lost twice"));
}

TEST_F(OpenVinoHandOver, a_device_that_vanishes_and_comes_back_goes_on) {
  begin("infer=lost");
  const auto sequence = new_sequence(*pair_);
  extend(*pair_, *sequence, {1, 2, 3});
  EXPECT_EQ(pair_->report().losses, 1);
  pair_->wait_until_made();
  told("");
  extend(*pair_, *sequence, {4});
  EXPECT_EQ(sequence->length(), 4);
  EXPECT_EQ(pair_->report().device_steps, 1);
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
}

}  // namespace
}  // namespace onw::testing
