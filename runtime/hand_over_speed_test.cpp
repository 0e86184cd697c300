// A device beside a CPU that is faster or slower: which of them answers, and what people are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "runtime/testing/hand_over_pair.h"
#include "targets/conformance.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;

// Both sides by a clock that their steps move.
class HandOverSpeed : public ::testing::Test {
 protected:
  void begin(double standby, double device, HandOverOptions options = {}) {
    cpu_seconds_ = standby;
    device_seconds_ = device;
    status_ = std::make_shared<DeviceStatus>([this](const std::string& text) { notices_ += text + "\n"; });
    options.status = status_;
    options.seconds = [this] { return clock_; };
    const auto takes = [this](const double& seconds) {
      const bool device = &seconds == &device_seconds_;
      return [this, &seconds, device](const Step& step, const CancelToken&) -> Result<void> {
        const auto rows = static_cast<double>(step.rows.size());
        clock_ += rows < kPromptRows ? seconds : rows * (device ? device_prompt_seconds_ : cpu_prompt_seconds_);
        return {};
      };
    };
    pair_ = make_hand_over(
        std::make_unique<FakeExecutable>(FakeOptions{.max_step_rows = 512, .before_step = takes(cpu_seconds_)}),
        makes([=, this] {
          return std::make_unique<FakeExecutable>(FakeOptions{.max_step_rows = 512,
                                                              .before_step = takes(device_seconds_),
                                                              .upkeep = [this] { return upkeep_; },
                                                              .on_rest = [this](bool resting) { resting_ = resting; }});
        }),
        options);
  }

  // So many tokens more, each as if nobody had moved anything.
  void answer(Sequence& sequence, int64_t tokens) {
    FakeExecutable alone;
    const int64_t begin = sequence.length();
    const auto all = some_tokens(alone, begin + tokens, 3);
    const auto expected = logits_of(alone, all, 1);
    for (int64_t i = begin; i < begin + tokens; ++i)
      ASSERT_TRUE(same_bits(extend(*pair_, sequence, part(all, i, 1))[0], expected[static_cast<size_t>(i)])) << i;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream text(notices_);
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }

  // As many new conversations with a long prompt each. Returns how many rows of them the device computed.
  int64_t read_prompts(int count, int64_t rows = 256) {
    FakeExecutable alone;
    const int64_t before = pair_->report().device_steps;
    for (int i = 0; i < count; ++i) {
      const auto sequence = new_sequence(*pair_);
      const auto tokens = some_tokens(alone, rows, 5);
      EXPECT_FALSE(extend(*pair_, *sequence, tokens).empty());
    }
    return (pair_->report().device_steps - before) * rows;
  }

  // The CPU answers until it is timed, before the device is made; then the device until that is.
  std::unique_ptr<Sequence> timed_on_both() {
    auto sequence = new_sequence(*pair_);
    may_be_made_ = false;
    answer(*sequence, kTimed);
    may_be_made_ = true;
    answer(*sequence, kTimed);
    return sequence;
  }
  HandOverOptions late() {
    return {.prefers_device = [this](int64_t) { return may_be_made_; }};
  }

  static constexpr int64_t kTimed = kTokenTrial.warm_up + kTokenTrial.timed;
  double clock_ = 0, cpu_seconds_ = 0, device_seconds_ = 0;
  double cpu_prompt_seconds_ = .002, device_prompt_seconds_ = .002;  // for a row
  bool may_be_made_ = true, resting_ = false;
  Upkeep upkeep_;
  std::string notices_;
  std::shared_ptr<DeviceStatus> status_;
  std::unique_ptr<HandOver> pair_;
};

TEST_F(HandOverSpeed, a_device_that_is_far_slower_gives_way_to_the_cpu) {
  begin(.025, .25, late());
  pair_->wait_until_made();
  const auto sequence = timed_on_both();
  answer(*sequence, 5);
  EXPECT_EQ(pair_->report().state, DeviceState::given_up);
  EXPECT_EQ(pair_->report().standby_steps, kTimed + 5);
  EXPECT_THAT(notices_, HasSubstr("The CPU answers, without the NPU: it gives 4.0 tokens a second with this model, the "
                                  "CPU 40. --device NPU takes it all the same"));
}

// For the power that it saves.
TEST_F(HandOverSpeed, a_device_that_is_somewhat_slower_is_worth_having) {
  begin(.025, .07, late());
  pair_->wait_until_made();
  const auto sequence = timed_on_both();
  answer(*sequence, 100);
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
  EXPECT_EQ(pair_->report().standby_steps, kTimed);
  EXPECT_EQ(notices_, "The NPU is ready and goes on with the answers\n");
}

TEST_F(HandOverSpeed, a_device_whose_answers_nobody_waits_for_is_worth_having) {
  begin(.001, .009, late());
  pair_->wait_until_made();
  const auto sequence = timed_on_both();
  answer(*sequence, 100);
  EXPECT_EQ(pair_->report().standby_steps, kTimed);
}

TEST_F(HandOverSpeed, who_insists_on_the_device_keeps_it_and_is_told_once) {
  HandOverOptions options = late();
  options.insisted = true;
  begin(.025, .25, options);
  pair_->wait_until_made();
  const auto sequence = timed_on_both();
  answer(*sequence, 60);
  EXPECT_EQ(pair_->report().standby_steps, kTimed);
  const std::string told = "The NPU gives 4.0 tokens a second with this model, the CPU 40, which would be taken";
  EXPECT_THAT(notices_, HasSubstr(told));
  EXPECT_EQ(notices_.find(told), notices_.rfind(told));
}

// Compiled graphs were there at once: the CPU never had to answer, and does so for some steps, once.
TEST_F(HandOverSpeed, a_cpu_that_never_answered_is_tried_once) {
  for (const bool slow : {false, true}) {
    notices_.clear();
    begin(.025, slow ? .25 : .05);
    pair_->wait_until_made();
    const auto sequence = new_sequence(*pair_);
    answer(*sequence, 100);
    EXPECT_EQ(pair_->report().device_steps, slow ? kTimed : 100 - kTimed);
    EXPECT_EQ(pair_->report().state, slow ? DeviceState::given_up : DeviceState::ready);
  }
}

// Graphs that are still compiled or loaded may make all the difference: until then the device rests, and is tried
// again.
TEST_F(HandOverSpeed, a_slow_device_that_may_become_faster_is_tried_again) {
  for (const bool faster : {true, false}) {
    notices_.clear();
    upkeep_ = {.more_to_come = true};
    begin(.025, .25, late());
    pair_->wait_until_made();
    const auto sequence = timed_on_both();
    answer(*sequence, 30);
    EXPECT_EQ(pair_->report().standby_steps, kTimed + 30);
    EXPECT_EQ(pair_->report().state, DeviceState::ready);
    EXPECT_TRUE(resting_) << "its graphs may be loaded while the CPU answers";
    EXPECT_THAT(notices_, HasSubstr("The CPU goes on with the answers: the NPU gives 4.0 tokens a second"));
    upkeep_ = {.improvements = 2};
    device_seconds_ = faster ? .02 : .2;
    answer(*sequence, 40);
    EXPECT_EQ(pair_->report().device_steps, faster ? kTimed + 40 : 2 * kTimed);
    EXPECT_EQ(pair_->report().state, faster ? DeviceState::ready : DeviceState::given_up);
  }
}

TEST_F(HandOverSpeed, what_is_known_of_an_earlier_run_needs_no_trial) {
  Speeds written;
  HandOverOptions options = late();
  options.speeds = {.read = {}, .write = [&](const Speeds& s) { written = s; }};
  begin(.025, .25, options);
  pair_->wait_until_made();
  answer(*timed_on_both(), 1);
  ASSERT_TRUE(written.tokens);
  EXPECT_NEAR(written.tokens->device, .25, 1e-9);
  EXPECT_NEAR(written.tokens->standby, .025, 1e-9);
  EXPECT_FALSE(written.prompts);
  for (const double device : {.05, .25}) {
    notices_.clear();
    begin(.025, device, {.speeds = {.read = [=] { return Speeds{.tokens = StepSeconds{device, .025}}; }, .write = {}}});
    pair_->wait_until_made();
    answer(*new_sequence(*pair_), 50);
    EXPECT_EQ(pair_->report().device_steps, device == .05 ? 50 : 0);
  }
  EXPECT_THAT(notices_, HasSubstr("without the NPU: it gives 4.0 tokens a second"));
}

constexpr int kPrompts = kPromptTrial.warm_up + kPromptTrial.timed;

// The CPU, which never had to read one, reads a few, once; then each side does what it is good at.
TEST_F(HandOverSpeed, a_device_whose_prompts_are_far_slower_leaves_them_to_the_cpu_and_answers) {
  Speeds written;
  device_prompt_seconds_ = .02;
  begin(.025, .02, {.speeds = {.read = {}, .write = [&](const Speeds& s) { written = s; }}});
  pair_->wait_until_made();
  EXPECT_EQ(read_prompts(kPrompts), kPrompts * 256);
  EXPECT_EQ(read_prompts(kPrompts), 0) << "for comparison";
  EXPECT_EQ(read_prompts(3), 0);
  EXPECT_EQ(pair_->report().state, DeviceState::ready);
  const auto sequence = new_sequence(*pair_);
  const int64_t before = pair_->report().device_steps;
  answer(*sequence, 7);
  EXPECT_EQ(pair_->report().device_steps, before + 7);
  EXPECT_EQ(
      notices_,
      "The NPU is ready and goes on with the answers\nThe CPU reads the prompts, and the NPU answers: it gives 50 "
      "tokens of a prompt a second with this model, the CPU 500. --device NPU takes it for both; onw compile "
      "MODEL --again has it tried anew\n");
  ASSERT_TRUE(written.prompts);
  EXPECT_NEAR(written.prompts->device, .02, 1e-9);
  EXPECT_NEAR(written.prompts->standby, .002, 1e-9);
  EXPECT_FALSE(written.tokens);
  begin(.025, .02, {.speeds = {.read = [=] { return written; }, .write = {}}});
  pair_->wait_until_made();
  EXPECT_EQ(read_prompts(2), 0) << "known from an earlier run";
}

TEST_F(HandOverSpeed, a_device_whose_prompts_are_somewhat_slower_or_waited_for_by_nobody_reads_them) {
  for (const auto& [cpu, device] : {std::pair(.002, .005), std::pair(.0001, .0009)}) {
    cpu_prompt_seconds_ = cpu;
    device_prompt_seconds_ = device;
    notices_.clear();
    begin(.025, .02);
    pair_->wait_until_made();
    read_prompts(2 * kPrompts);
    EXPECT_EQ(read_prompts(3), 3 * 256);
    EXPECT_EQ(notices_, "The NPU is ready and goes on with the answers\n");
  }
}

TEST_F(HandOverSpeed, who_insists_on_a_device_has_it_read_prompts_too_and_is_told_what_is_known) {
  device_prompt_seconds_ = .02;
  begin(.025, .02, {.insisted = true});
  pair_->wait_until_made();
  EXPECT_EQ(read_prompts(4 * kPrompts), 4 * kPrompts * 256) << "and gets no steps of the CPU's for comparison";
  notices_.clear();
  const auto known = [] { return Speeds{.prompts = StepSeconds{.02, .002}}; };
  begin(.025, .02, {.insisted = true, .speeds = {.read = known, .write = {}}});
  pair_->wait_until_made();
  EXPECT_EQ(read_prompts(2), 2 * 256);
  EXPECT_THAT(notices_, HasSubstr("The NPU gives 50 tokens of a prompt a second with this model, the CPU 500, which "
                                  "would be taken for prompts if nobody had insisted on the NPU"));
}

// What few rows take says how full a graph is, and several sequences share a step.
TEST_F(HandOverSpeed, short_prompts_are_not_timed) {
  device_seconds_ = 50;
  begin(.025, .02);
  pair_->wait_until_made();
  EXPECT_EQ(read_prompts(20, kPromptRows - 1), 20 * (kPromptRows - 1));
}

// What is known is told of a device that is there, and what is told of one that answers when people know that it does.
TEST_F(HandOverSpeed, notices_come_in_the_order_of_what_they_tell) {
  const auto known = [] { return Speeds{.tokens = StepSeconds{.25, .025}, .prompts = StepSeconds{.02, .002}}; };
  HandOverOptions options{.insisted = true, .speeds = {.read = known, .write = {}}};
  begin(.025, .25, options);
  pair_->wait_until_made();
  status_->tell_when_ready("It does without");  // by a thread of the device's own, before that is taken over
  answer(*new_sequence(*pair_), 3);
  status_->tell_when_ready("And later");
  EXPECT_THAT(lines(), ::testing::ElementsAre(HasSubstr("The NPU is ready"), "It does without",
                                              HasSubstr("gives 4.0 tokens a second"),
                                              HasSubstr("gives 50 tokens of a prompt a second"), "And later"));
}

TEST_F(HandOverSpeed, nothing_is_told_of_the_answers_of_a_device_that_does_not_answer) {
  begin(.025, .25, {.speeds = {.read = [] { return Speeds{.tokens = StepSeconds{.25, .025}}; }, .write = {}}});
  pair_->wait_until_made();
  status_->tell_when_ready("It does without");
  answer(*new_sequence(*pair_), 3);
  EXPECT_THAT(lines(), ::testing::ElementsAre(HasSubstr("The CPU answers, without the NPU: it gives 4.0 tokens")));
}

// ---- Rests

// A server that always answers would never let a device load what makes it faster.
TEST_F(HandOverSpeed, a_device_that_waits_long_for_a_rest_gets_one_while_the_cpu_answers) {
  begin(.025, .02);
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  upkeep_ = {.more_to_come = true, .wants_rest = true};
  answer(*sequence, 10);
  clock_ += 29;
  answer(*sequence, 1);
  EXPECT_FALSE(resting_);
  EXPECT_EQ(pair_->report().standby_steps, 0);
  clock_ += 1;
  answer(*sequence, 1);
  EXPECT_TRUE(resting_);
  upkeep_.busy = true;
  answer(*sequence, 3);
  EXPECT_TRUE(resting_) << "answers that go on do not end it";
  upkeep_.busy = false;
  answer(*sequence, 1);
  EXPECT_EQ(pair_->report().standby_steps, 5) << "all that is to be loaded is";
  EXPECT_EQ(pair_->report().rest_steps, 5) << "also before a graph's loading begins";
  upkeep_ = {.improvements = 2};
  answer(*sequence, 2);
  EXPECT_FALSE(resting_);
  EXPECT_EQ(pair_->report().standby_steps, 5);
}

TEST_F(HandOverSpeed, a_rest_between_answers_is_rest_enough) {
  begin(.025, .02);
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  upkeep_ = {.more_to_come = true, .wants_rest = true};
  for (int i = 0; i < 5; ++i) {
    answer(*sequence, 1);
    clock_ += 29;
    pair_->rest(true);
    EXPECT_TRUE(resting_);
    clock_ += 29;
  }
  upkeep_ = {.more_to_come = true};  // something is compiled still: nothing to rest for
  answer(*sequence, 1);
  clock_ += 100;
  answer(*sequence, 1);
  EXPECT_FALSE(resting_);
  EXPECT_EQ(pair_->report().standby_steps, 0);
}

// Loading a graph takes seconds: a question that comes meanwhile is the CPU's.
TEST_F(HandOverSpeed, while_a_device_is_busy_with_itself_the_cpu_answers) {
  begin(.025, .02);
  pair_->wait_until_made();
  const auto sequence = new_sequence(*pair_);
  answer(*sequence, 5);
  pair_->rest(true);
  EXPECT_TRUE(resting_);
  upkeep_.busy = true;
  DeviceReport before = pair_->report();
  answer(*sequence, 3);
  EXPECT_FALSE(resting_) << "nothing else is begun";
  EXPECT_EQ(pair_->report().standby_steps, 3);
  EXPECT_EQ(describe(since(before, pair_->report())), "on the CPU while the NPU's graphs are loaded");
  upkeep_.busy = false;
  answer(*sequence, 2);
  EXPECT_EQ(pair_->report().device_steps, 7);
  EXPECT_EQ(describe(since(before, pair_->report())),
            "3 steps on the CPU while the NPU's graphs are loaded, 2 on the NPU");
  before = pair_->report();
  answer(*sequence, 1);
  EXPECT_EQ(describe(since(before, pair_->report())), "on the NPU");
  EXPECT_EQ(pair_->report().moves, 3);
}

}  // namespace
}  // namespace onw::testing
