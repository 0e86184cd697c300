// A device beside a CPU that is faster or slower: which of them answers, and what people are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    options.status = std::make_shared<DeviceStatus>([this](const std::string& text) { notices_ += text + "\n"; });
    options.seconds = [this] { return clock_; };
    const auto takes = [this](const double& seconds) {
      return [&](const Step&, const CancelToken&) -> Result<void> {
        clock_ += seconds;
        return {};
      };
    };
    pair_ = make_hand_over(
        std::make_unique<FakeExecutable>(FakeOptions{.before_step = takes(cpu_seconds_)}), makes([=, this] {
          return std::make_unique<FakeExecutable>(FakeOptions{.before_step = takes(device_seconds_),
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

  static constexpr int64_t kTimed = StepTimes::kWarmUp + StepTimes::kTimed;
  double clock_ = 0, cpu_seconds_ = 0, device_seconds_ = 0;
  bool may_be_made_ = true, resting_ = false;
  Upkeep upkeep_;
  std::string notices_;
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
  StepSeconds written;
  HandOverOptions options = late();
  options.speeds = {.read = {}, .write = [&](const StepSeconds& s) { written = s; }};
  begin(.025, .25, options);
  pair_->wait_until_made();
  answer(*timed_on_both(), 1);
  EXPECT_NEAR(written.device, .25, 1e-9);
  EXPECT_NEAR(written.standby, .025, 1e-9);
  for (const double device : {.05, .25}) {
    notices_.clear();
    begin(.025, device, {.speeds = {.read = [=] { return StepSeconds{device, .025}; }, .write = {}}});
    pair_->wait_until_made();
    answer(*new_sequence(*pair_), 50);
    EXPECT_EQ(pair_->report().device_steps, device == .05 ? 50 : 0);
  }
  EXPECT_THAT(notices_, HasSubstr("without the NPU: it gives 4.0 tokens a second"));
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
  answer(*sequence, 3);
  EXPECT_FALSE(resting_) << "nothing else is begun";
  EXPECT_EQ(pair_->report().standby_steps, 3);
  upkeep_.busy = false;
  answer(*sequence, 2);
  EXPECT_EQ(pair_->report().device_steps, 7);
  EXPECT_EQ(pair_->report().moves, 3);
}

}  // namespace
}  // namespace onw::testing
