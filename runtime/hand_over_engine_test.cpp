// Whole answers while the device under them comes, errs and goes: the text is that of a device that never did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/testing/engine_driver.h"
#include "runtime/testing/hand_over_pair.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HandOverEngine : public ::testing::Test {
 protected:
  // `faults`: what the device does in its n-th step, counted over its lives.
  void begin(std::map<int, Error> faults, FakeMemory memory = FakeMemory::free, bool insisted = false) {
    faults_ = std::move(faults);
    auto status = std::make_shared<DeviceStatus>([this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      notices_ += text + "\n";
    });
    const auto device = [this, memory] {
      return std::make_unique<FakeExecutable>(
          FakeOptions{.memory = memory, .before_step = [this](const Step&, const CancelToken&) -> Result<void> {
                        const auto fault = faults_.find(++steps_);
                        return fault == faults_.end() ? Result<void>() : Failure(fault->second);
                      }});
    };
    auto pair = make_hand_over(std::make_unique<FakeExecutable>(FakeOptions{.memory = memory}), makes(device),
                               {.insisted = insisted, .status = status});
    pair->wait_until_made();
    auto engine = Engine::create(std::move(pair), {.memory_bytes = int64_t{1} << 40}, status);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  void expect_right(const std::vector<int32_t>& prompt, int64_t count, uint64_t seed) {
    const Answer got = answer(*engine_, {.prompt = prompt, .sampling = {.seed = seed}, .max_tokens = count});
    EXPECT_EQ(got.finish, FinishReason::length) << (got.error ? got.error->message : "");
    EXPECT_EQ(got.tokens, expected_tokens(prompt, {.seed = seed}, count));
  }

  std::string notices() const {
    const std::lock_guard lock(mutex_);
    return notices_;
  }

  std::map<int, Error> faults_;
  std::atomic<int> steps_ = 0;
  mutable std::mutex mutex_;
  std::string notices_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(HandOverEngine, a_device_that_vanishes_mid_answer_changes_no_word) {
  begin({{7, {Code::internal, "DEVICE_LOST"}}});
  expect_right({1, 2, 3}, 30, 4);
  EXPECT_THAT(notices(), HasSubstr("The NPU was lost (DEVICE_LOST)"));
  EXPECT_EQ(engine_->stats().device.losses, 1);
  expect_right({1, 2, 3, 9}, 10, 5);
}

TEST_F(HandOverEngine, wrong_numbers_and_want_of_memory_change_no_word) {
  begin({{3, {Code::numerics, "not finite"}}, {20, {Code::out_of_memory, "no memory"}}});
  expect_right({1, 2, 3}, 10, 4);
  expect_right({5}, 40, 6);
  EXPECT_EQ(engine_->stats().device.wrong_steps, 1);
  EXPECT_EQ(engine_->stats().device.refused_steps, 1);
  EXPECT_EQ(engine_->stats().device.state, DeviceState::ready);
}

// A second turn goes back to a checkpoint that went with the device: it is computed again.
TEST_F(HandOverEngine, a_second_turn_is_right_where_its_checkpoint_went_with_the_device) {
  begin({{12, {Code::internal, "DEVICE_LOST"}}}, FakeMemory::recurrent);
  expect_right({1, 2, 3, 4}, 9, 4);
  expect_right({1, 2, 3, 4, 5, 6, 7}, 9, 5);
  expect_right({1, 2, 3, 4, 5, 9}, 9, 6);
  EXPECT_EQ(engine_->stats().device.losses, 1);
}

TEST_F(HandOverEngine, answers_at_the_same_time_survive_a_lost_device) {
  begin({{9, {Code::internal, "DEVICE_LOST"}}});
  std::vector<std::unique_ptr<Generation>> running;
  for (int32_t i = 1; i <= 4; ++i) {
    auto generation = engine_->submit({.prompt = {i, 2 * i}, .sampling = {.seed = 9}, .max_tokens = 25});
    ASSERT_TRUE(generation);
    running.push_back(std::move(*generation));
  }
  for (int32_t i = 1; i <= 4; ++i)
    EXPECT_EQ(collect(*running[static_cast<size_t>(i - 1)], 1)[0].tokens, expected_tokens({i, 2 * i}, {.seed = 9}, 25));
}

TEST_F(HandOverEngine, who_insists_on_a_device_that_is_gone_gets_an_error_that_says_what_to_do) {
  begin({{3, {Code::internal, "DEVICE_LOST"}}, {4, {Code::internal, "DEVICE_LOST"}}}, FakeMemory::free, true);
  Answer got;
  for (int i = 0; i < 200 && got.finish != FinishReason::error; ++i)
    got = answer(*engine_, {.prompt = {1}, .sampling = {.seed = 1}, .max_tokens = 20});
  ASSERT_TRUE(got.error);
  EXPECT_THAT(got.error->message, HasSubstr("the NPU was asked for (--device NPU) and does not answer"));
  EXPECT_THAT(got.error->message, HasSubstr("Start onw with --device CPU"));
  EXPECT_THAT(got.error->message, Not(HasSubstr("DEVICE_LOST"))) << "the driver's words are in the notice";
  EXPECT_THAT(notices(), HasSubstr("The NPU does not answer: it was lost twice (DEVICE_LOST)"));
}

// Nobody asks anything: who started onw is told all the same, when it happens.
TEST(HandOverIdle, a_device_that_is_made_or_fails_is_told_at_once) {
  for (const bool works : {true, false}) {
    std::promise<std::string> told;
    std::atomic<bool> may_end = false;
    auto status = std::make_shared<DeviceStatus>([&](const std::string& text) { told.set_value(text); });
    const auto maker = [&](const Making&) -> Result<std::unique_ptr<Executable>> {
      while (!may_end) std::this_thread::yield();
      if (!works) return error(Code::unsupported, "the compiler gave up");
      return std::make_unique<FakeExecutable>();
    };
    auto pair = make_hand_over(std::make_unique<FakeExecutable>(), maker, {.status = status});
    const auto engine = Engine::create(std::move(pair), {.memory_bytes = int64_t{1} << 40}, status);
    ASSERT_TRUE(engine);
    may_end = true;
    auto text = told.get_future();
    ASSERT_EQ(text.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_THAT(text.get(), HasSubstr(works ? "The NPU is ready" : "The CPU answers, without the NPU: the compiler"));
    EXPECT_EQ((*engine)->stats().device.state, works ? DeviceState::ready : DeviceState::given_up);
  }
}

// The comparison with the CPU may take seconds: the end does not wait for it.
TEST(HandOverIdle, a_check_under_way_ends_with_the_engine) {
  std::promise<void> begun;
  const auto check = [&](Executable&, Executable&, const CancelToken& cancel) -> Result<void> {
    begun.set_value();
    while (!cancel.cancelled()) std::this_thread::yield();
    return error(Code::cancelled, "stopped");
  };
  auto status = std::make_shared<DeviceStatus>();
  auto pair =
      make_hand_over(std::make_unique<FakeExecutable>(), makes([] { return std::make_unique<FakeExecutable>(); }),
                     {.check = check, .status = status});
  auto engine = Engine::create(std::move(pair), {.memory_bytes = int64_t{1} << 40}, status);
  ASSERT_TRUE(engine);
  begun.get_future().wait();
  const auto start = std::chrono::steady_clock::now();
  engine->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace onw::testing
