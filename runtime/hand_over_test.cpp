// The hand-over between two targets: every promise of the contract with moves at every point, and what it does when the
// device is late, errs, is lost, or never comes.
#include "runtime/hand_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "runtime/testing/hand_over_pair.h"
#include "targets/conformance.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;

ConformanceSubject restless_fakes(const std::string& name, const FakeOptions& standby, const FakeOptions& device,
                                  int64_t tokens = 300) {
  return {.name = name,
          .make =
              [=] {
                return restless([=] { return std::make_unique<FakeExecutable>(standby); },
                                [=] { return std::make_unique<FakeExecutable>(device); });
              },
          .tokens = tokens};
}

[[maybe_unused]] const bool kRegistered[] = {
    register_conformance(restless_fakes("HandOverConformance", {}, {})),
    register_conformance(restless_fakes("HandOverConformance_ring", {.memory = FakeMemory::ring, .ring_slack = 40},
                                        {.memory = FakeMemory::ring, .ring_slack = 20})),
    register_conformance(restless_fakes("HandOverConformance_recurrent", {.memory = FakeMemory::recurrent},
                                        {.memory = FakeMemory::recurrent})),
    register_conformance(restless_fakes("HandOverConformance_device_of_one_sequence", {}, {.mixes = false})),
    register_conformance(restless_fakes("HandOverConformance_device_of_short_steps", {}, {.max_step_rows = 20})),
    register_conformance(restless_fakes("HandOverConformance_recurrent_device_of_short_steps",
                                        {.memory = FakeMemory::recurrent},
                                        {.max_step_rows = 16, .mixes = false, .memory = FakeMemory::recurrent})),
};

// A hand-over of fakes that a test can trouble.
class HandOverFaults : public ::testing::Test {
 protected:
  using Script = std::function<Result<void>()>;  // before each step of the device

  void begin(HandOverOptions options = {}, DeviceMaker maker = {}) {
    status_ = std::make_shared<DeviceStatus>([this](const std::string& text) { notices_.push_back(text); });
    options.status = status_;
    if (!maker)
      maker = makes([this] {
        ++made_;
        return std::make_unique<FakeExecutable>(FakeOptions{
            .before_step = [this](const Step&, const CancelToken&) { return script_ ? script_() : Result<void>(); }});
      });
    pair_ = make_hand_over(std::make_unique<FakeExecutable>(), std::move(maker), std::move(options));
  }

  // The logits that follow `tokens`, one step a token, are those of a fake that was never troubled.
  void expect_answers(Sequence& sequence, const Tokens& tokens) {
    FakeExecutable alone;
    const auto expected = logits_of(alone, tokens, 1);
    for (int64_t i = sequence.length(); i < static_cast<int64_t>(tokens.size()); ++i)
      ASSERT_TRUE(same_bits(extend(*pair_, sequence, part(tokens, i, 1))[0], expected[static_cast<size_t>(i)])) << i;
  }

  std::string notices() const {
    std::string all;
    for (const auto& text : notices_) all += text + "\n";
    return all;
  }

  std::vector<std::string> notices_;
  std::shared_ptr<DeviceStatus> status_;
  std::unique_ptr<HandOver> pair_;
  Script script_;
  std::atomic<int> made_ = 0;
};

TEST_F(HandOverFaults, the_standby_answers_until_the_device_is_made) {
  std::atomic<bool> may_end = false;
  begin({}, [&](const Making& making) -> Result<std::unique_ptr<Executable>> {
    for (int i = 0; !may_end && i < 3000; ++i) {
      if (!making.progress(1, 3)) return error(Code::cancelled, "stopped");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::make_unique<FakeExecutable>();
  });
  const auto sequence = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 30, 1);
  expect_answers(*sequence, part(tokens, 0, 10));
  while (pair_->report().of == 0) std::this_thread::yield();
  EXPECT_EQ(describe(pair_->report()), "on the CPU while the NPU's graphs are compiled: 1 of 3");
  EXPECT_EQ(pair_->report().device_steps, 0);
  may_end = true;
  pair_->wait_until_made();
  const DeviceReport before = pair_->report();
  expect_answers(*sequence, tokens);
  EXPECT_EQ(pair_->report().standby_steps, 10);
  EXPECT_EQ(pair_->report().device_steps, 20);
  EXPECT_EQ(pair_->report().moves, 1);
  EXPECT_EQ(describe(pair_->report()), "10 steps on the CPU, 20 on the NPU");
  EXPECT_EQ(describe(since(before, pair_->report())), "on the NPU");
  EXPECT_EQ(describe({.device = "NPU", .state = DeviceState::ready, .device_steps = 1, .fused_tokens = 2048}),
            "on the NPU, attention inside its graphs up to 2048 tokens");
  EXPECT_EQ(describe({.device = "NPU", .state = DeviceState::ready}), "on the NPU") << "stopped before its first step";
  EXPECT_EQ(describe({.device = "NPU", .state = DeviceState::ready, .standby_steps = 1}), "on the CPU");
  const DeviceReport loads = {.device = "NPU", .standby_steps = 1};
  EXPECT_EQ(describe(loads), "on the CPU while the NPU's graphs are loaded") << "kept ones, after a start";
  EXPECT_EQ(describe(since(loads, {.device = "NPU", .state = DeviceState::ready, .standby_steps = 2})),
            "on the CPU; the NPU is ready for the next answer");
  EXPECT_THAT(notices(), HasSubstr("The NPU is ready"));
}

TEST_F(HandOverFaults, nobody_waits_for_a_device_that_is_still_made_when_all_ends) {
  std::atomic<bool> stopped = false;
  begin({}, [&](const Making& making) -> Result<std::unique_ptr<Executable>> {
    while (making.progress(0, 100) && !making.cancel->cancelled()) std::this_thread::yield();
    stopped = true;
    return error(Code::cancelled, "stopped");
  });
  pair_.reset();
  EXPECT_TRUE(stopped);
  EXPECT_EQ(notices(), "");
}

TEST_F(HandOverFaults, a_device_that_cannot_be_made_leaves_the_standby_and_says_why) {
  begin({}, [](const Making&) -> Result<std::unique_ptr<Executable>> {
    return error(Code::unsupported, "the compiler gave up. Update the driver");
  });
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  expect_answers(*sequence, some_tokens(*pair_, 10, 2));
  EXPECT_EQ(notices(), "The CPU answers, without the NPU: the compiler gave up. Update the driver\n");
  EXPECT_EQ(pair_->report().state, DeviceState::given_up);
}

TEST_F(HandOverFaults, who_insists_on_a_device_that_cannot_be_made_is_told_what_to_do) {
  begin({.insisted = true}, [](const Making&) -> Result<std::unique_ptr<Executable>> {
    return error(Code::unsupported, "the compiler gave up. Update the driver");
  });
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  Sequence* const only = sequence.get();
  const Row row = text_row(0, 0, 1, true);
  const auto out = pair_->run({.sequences = {&only, 1}, .rows = {&row, 1}}, CancelToken());
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::internal) << "no fault of the request's";
  EXPECT_EQ(
      out.error().message,
      "the NPU was asked for (--device NPU) and does not answer; why was told when it was given up. Start onw with "
      "--device CPU, which answers without it; onw doctor shows what the NPU lacks");
  EXPECT_THAT(notices(), HasSubstr("The NPU does not answer: the compiler gave up. Update the driver"));
}

TEST_F(HandOverFaults, a_device_that_fails_its_check_never_answers) {
  begin({.check = [](Executable&, Executable&, const CancelToken&) -> Result<void> {
    return error(Code::numerics, "KL 3.1");
  }});
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  expect_answers(*sequence, some_tokens(*pair_, 10, 3));
  EXPECT_EQ(pair_->report().device_steps, 0);
  EXPECT_THAT(notices(), HasSubstr("without the NPU: KL 3.1"));
}

// Whoever waits for an answer no longer does not take the check along: it is made again.
TEST_F(HandOverFaults, a_check_that_was_cancelled_is_made_again) {
  int checks = 0;
  begin({.check = [&](Executable&, Executable&, const CancelToken& cancel) -> Result<void> {
    ++checks;
    return cancel.cancelled() ? error(Code::cancelled, "stopped") : Result<void>();
  }});
  pair_->wait_until_made();
  CancelToken cancelled;
  cancelled.cancel();
  status_->attend(cancelled);
  EXPECT_EQ(pair_->report().state, DeviceState::making);
  status_->attend(CancelToken());
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
  EXPECT_EQ(checks, 2);
}

TEST_F(HandOverFaults, a_device_that_promises_less_is_not_taken) {
  begin({}, makes([] { return std::make_unique<FakeExecutable>(FakeOptions{.max_context = 100}); }));
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  expect_answers(*sequence, some_tokens(*pair_, 5, 4));
  EXPECT_EQ(pair_->report().state, DeviceState::given_up);
}

// A step whose numbers cannot be is computed by the standby, which keeps the conversation for a while.
TEST_F(HandOverFaults, wrong_numbers_are_computed_again_and_counted) {
  begin();
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_), other = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 400, 5);
  expect_answers(*sequence, part(tokens, 0, 8));
  script_ = [this]() -> Result<void> {
    script_ = {};
    return error(Code::numerics, "the NPU gives logits that are not finite");
  };
  expect_answers(*sequence, part(tokens, 0, 9));
  EXPECT_EQ(pair_->report().wrong_steps, 1);
  EXPECT_EQ(pair_->report().standby_steps, 1);
  EXPECT_THAT(notices(), HasSubstr("not finite. The CPU computes the step again"));
  expect_answers(*other, part(tokens, 0, 5));
  EXPECT_EQ(pair_->report().standby_steps, 1) << "another conversation stays on the device";
  expect_answers(*sequence, tokens);
  EXPECT_EQ(pair_->report().standby_steps, 256) << "and this one comes back";
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
}

TEST_F(HandOverFaults, a_step_of_many_is_computed_again_as_one) {
  begin();
  pair_->wait_until_made();
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(new_sequence(*pair_));
  const auto tokens = some_tokens(*pair_, 12, 6);
  script_ = [this]() -> Result<void> {
    script_ = {};
    return error(Code::out_of_memory, "the NPU has no memory");
  };
  const auto logits = run_together(*pair_, {{sequences[0].get(), part(tokens, 0, 4)},
                                            {sequences[1].get(), part(tokens, 4, 3)},
                                            {sequences[2].get(), part(tokens, 7, 5)}});
  FakeExecutable alone;
  EXPECT_TRUE(same_bits(logits[3], cold(alone, part(tokens, 0, 4))));
  EXPECT_TRUE(same_bits(logits[6], cold(alone, part(tokens, 4, 3))));
  EXPECT_TRUE(same_bits(logits[11], cold(alone, part(tokens, 7, 5))));
  EXPECT_EQ(pair_->report().refused_steps, 1);
}

TEST_F(HandOverFaults, a_device_that_errs_again_and_again_is_given_up) {
  begin();
  pair_->wait_until_made();
  script_ = [] { return error(Code::numerics, "the NPU gives logits that are all zero"); };
  for (int i = 0; i < 20; ++i) expect_answers(*new_sequence(*pair_), some_tokens(*pair_, 2, 7));
  EXPECT_EQ(pair_->report().wrong_steps, 17);
  EXPECT_EQ(pair_->report().state, DeviceState::given_up);
  EXPECT_THAT(notices(), HasSubstr("without the NPU: it erred in 17 steps, the last time: the NPU gives logits that "
                                   "are all zero"));
}

TEST_F(HandOverFaults, a_lost_device_is_made_anew_and_goes_on_from_the_same_state) {
  begin();
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_), resting = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 40, 8);
  expect_answers(*resting, part(tokens, 0, 20));
  expect_answers(*sequence, part(tokens, 0, 20));
  script_ = [this]() -> Result<void> {
    script_ = {};
    return error(Code::internal, "ZE_RESULT_ERROR_DEVICE_LOST");
  };
  expect_answers(*sequence, part(tokens, 0, 21));
  EXPECT_THAT(notices(), HasSubstr("The NPU was lost (ZE_RESULT_ERROR_DEVICE_LOST). The CPU goes on"));
  pair_->wait_until_made();
  expect_answers(*sequence, tokens);
  expect_answers(*resting, tokens);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(pair_->report().losses, 1);
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
  EXPECT_GE(pair_->report().device_steps, 70);
}

TEST_F(HandOverFaults, a_device_that_is_lost_again_at_once_is_given_up) {
  begin();
  script_ = [] { return error(Code::internal, "DEVICE_LOST"); };
  const auto sequence = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 10, 9);
  for (int64_t n = 1; n <= 10; ++n) {
    pair_->wait_until_made();
    expect_answers(*sequence, part(tokens, 0, n));
  }
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(pair_->report().losses, 2);
  EXPECT_EQ(pair_->report().state, DeviceState::given_up);
  EXPECT_THAT(notices(), HasSubstr("without the NPU: it was lost twice (DEVICE_LOST)"));
}

TEST_F(HandOverFaults, a_lost_device_that_does_not_come_back_leaves_the_standby) {
  std::atomic<int> made = 0;
  begin({}, [&](const Making&) -> Result<std::unique_ptr<Executable>> {
    if (++made > 1) return error(Code::unsupported, "there is no NPU");
    return std::make_unique<FakeExecutable>(
        FakeOptions{.before_step = [](const Step&, const CancelToken&) { return error(Code::internal, "gone"); }});
  });
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 10, 10);
  expect_answers(*sequence, part(tokens, 0, 3));
  pair_->wait_until_made();
  expect_answers(*sequence, tokens);
  EXPECT_THAT(notices(), HasSubstr("without the NPU: there is no NPU"));
}

// Checkpoints that a lost device kept go with it: recomputing takes their place. What the standby kept stays.
TEST_F(HandOverFaults, checkpoints_of_a_lost_device_are_refused_and_others_are_not) {
  std::atomic<bool> ready = false;
  begin({.prefers_device = [&](int64_t) { return ready.load(); }});
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  const auto tokens = some_tokens(*pair_, 30, 11);
  expect_answers(*sequence, part(tokens, 0, 10));
  const auto early = *sequence->checkpoint();
  ready = true;
  expect_answers(*sequence, part(tokens, 0, 20));
  const auto late = *sequence->checkpoint();
  ASSERT_TRUE(sequence->restore(*late));
  script_ = [this]() -> Result<void> {
    script_ = {};
    return error(Code::internal, "DEVICE_LOST");
  };
  expect_answers(*sequence, part(tokens, 0, 25));
  const auto refused = sequence->restore(*late);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::not_found);
  EXPECT_EQ(sequence->length(), 25) << "as it was";
  EXPECT_EQ(late->length(), 20);
  ASSERT_TRUE(sequence->restore(*early));
  expect_answers(*sequence, tokens);
}

// A step of which one side computes some sequences and the other side others.
TEST_F(HandOverFaults, a_step_over_both_sides_happens_wholly_or_not_at_all) {
  begin({.prefers_device = [](int64_t length) { return length < 8; }});
  pair_->wait_until_made();
  const auto tokens = some_tokens(*pair_, 40, 12);
  const auto here = new_sequence(*pair_), there = new_sequence(*pair_);
  expect_answers(*here, part(tokens, 0, 10));
  FakeExecutable alone;
  const auto both = [&](int64_t rows) {
    const int64_t at = there->length();
    const auto logits =
        run_together(*pair_, {{here.get(), part(tokens, here->length(), rows)}, {there.get(), part(tokens, at, 2)}});
    EXPECT_TRUE(same_bits(logits[0], cold(alone, part(tokens, 0, here->length() - rows + 1))));
    EXPECT_TRUE(same_bits(logits.back(), cold(alone, part(tokens, 0, at + 2))));
  };
  both(3);
  for (const Code code : {Code::cancelled, Code::numerics}) {
    script_ = [this, code]() -> Result<void> {
      script_ = {};
      return error(code, "no");
    };
    if (code == Code::numerics) {
      both(3);  // by the standby in the end, and once
      continue;
    }
    for (const int64_t rows : {3, 20}) {  // more than may be kept in part, too
      std::vector<Row> step;
      for (int64_t i = 0; i < rows; ++i) step.push_back(text_row(0, here->length() + i, 1, true));
      step.push_back(text_row(1, there->length(), 1, true));
      script_ = [code]() -> Result<void> { return error(code, "no"); };
      Sequence* const sequences[] = {here.get(), there.get()};
      const auto out = pair_->run({.sequences = sequences, .rows = step}, CancelToken());
      ASSERT_FALSE(out);
      EXPECT_EQ(out.error().code, code);
      EXPECT_EQ(here->length(), 13);
      EXPECT_EQ(there->length(), 2);
    }
    script_ = {};
  }
  expect_answers(*here, tokens);
  expect_answers(*there, tokens);
  EXPECT_EQ(pair_->report().wrong_steps, 1);
}

// A step that is too long for the device is cut, and happens wholly or not at all.
TEST_F(HandOverFaults, a_long_step_that_fails_halfway_leaves_everything_as_before) {
  begin({}, makes([this] {
          return std::make_unique<FakeExecutable>(FakeOptions{
              .max_step_rows = 16,
              .before_step = [this](const Step&, const CancelToken&) { return script_ ? script_() : Result<void>(); }});
        }));
  pair_->wait_until_made();
  const auto tokens = some_tokens(*pair_, 60, 13);
  const auto sequence = new_sequence(*pair_);
  expect_answers(*sequence, part(tokens, 0, 5));
  int left = 2;
  script_ = [&left]() -> Result<void> {
    if (left-- > 0) return {};
    return error(Code::cancelled, "no");
  };
  std::vector<Row> step;
  for (int64_t i = 0; i < 50; ++i) step.push_back(text_row(0, 5 + i, tokens[static_cast<size_t>(5 + i)], i % 7 == 0));
  Sequence* const only = sequence.get();
  ASSERT_FALSE(pair_->run({.sequences = {&only, 1}, .rows = step}, CancelToken()));
  EXPECT_EQ(sequence->length(), 5);
  left = 1000;
  FakeExecutable alone;
  const auto expected = logits_of(alone, tokens);
  const auto out = pair_->run({.sequences = {&only, 1}, .rows = step}, CancelToken());
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_EQ(out->logits.size(), 8 * expected[0].size());
  for (size_t i = 0; i < 8; ++i)
    EXPECT_TRUE(same_bits(out->logits.subspan(i * expected[0].size(), expected[0].size()), expected[5 + 7 * i])) << i;
  sequence->commit(50);
  expect_answers(*sequence, tokens);
  EXPECT_GE(pair_->report().device_steps, 4 + 5);
}

// What the caller did wrong is no fault of the device.
TEST_F(HandOverFaults, a_cancelled_step_is_not_taken_for_a_lost_device) {
  begin();
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  Sequence* const only = sequence.get();
  const Row row = text_row(0, 0, 1, true);
  CancelToken cancelled;
  cancelled.cancel();
  const auto out = pair_->run({.sequences = {&only, 1}, .rows = {&row, 1}}, cancelled);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::cancelled);
  EXPECT_EQ(pair_->report().losses, 0);
}

}  // namespace
}  // namespace onw::testing
