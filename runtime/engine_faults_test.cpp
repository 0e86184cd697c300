// What breaks, who leaves, and what memory forbids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/testing/engine_driver.h"
#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::answer;
using onw::testing::Answer;
using onw::testing::answers;
using onw::testing::collect;
using onw::testing::expected_tokens;
using onw::testing::fake_engine;
using onw::testing::FakeEngine;
using onw::testing::FakeMemory;
using onw::testing::FakeOptions;
using onw::testing::Random;
using ::testing::HasSubstr;

GenerateRequest request(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed = 1) {
  return {.prompt = std::move(prompt), .sampling = {.seed = seed}, .max_tokens = max_tokens};
}

void expect_answers_still(const FakeEngine& engine) {
  EXPECT_EQ(answer(*engine, request({5, 6}, 10)).tokens, expected_tokens({5, 6}, {.seed = 1}, 10));
}

void wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(done());
}

// Holds every step back until it is opened, or the step is cancelled.
class Gate {
 public:
  auto hook() {
    return [this](const Step&, const CancelToken& cancel) -> Result<void> {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      while (!open_ && !cancel.cancelled()) changed_.wait_for(lock, std::chrono::milliseconds(1));
      return {};
    };
  }
  void wait_for_steps(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

TEST(Cancel, stops_within_the_running_step_when_nobody_else_is_in_it) {
  Gate gate;
  const auto engine = fake_engine({.before_step = gate.hook()});
  auto generation = engine->submit(request(std::vector<int32_t>(500, 1), 10)).value();
  gate.wait_for_steps(1);
  generation->cancel();
  const Answer got = collect(*generation, 1)[0];  // comes although the gate is shut
  EXPECT_EQ(got.finish, FinishReason::cancelled);
  EXPECT_TRUE(got.tokens.empty());
  gate.open();
  expect_answers_still(engine);
}

TEST(Stats, count_an_answer_from_before_its_first_step_on) {
  Gate gate;
  const auto engine = fake_engine({.before_step = gate.hook()});
  auto generation = engine->submit(request(std::vector<int32_t>(500, 1), 10)).value();
  gate.wait_for_steps(1);
  EXPECT_EQ(engine->stats().active, 1);  // though no step has ended
  EXPECT_EQ(engine->stats().waiting, 0);
  EXPECT_EQ(engine->stats().requests, 1);
  gate.open();
  collect(*generation, 1);
  wait_until([&] { return engine->stats().active == 0; });
}

TEST(Cancel, lets_the_others_of_the_step_go_on) {
  Gate gate;
  const auto engine = fake_engine({.before_step = gate.hook()});
  auto stays = engine->submit(request({1, 2}, 20)).value();
  gate.wait_for_steps(1);
  auto leaves = engine->submit(request({3, 4}, 20)).value();
  leaves->cancel();
  gate.open();
  EXPECT_EQ(collect(*leaves, 1)[0].finish, FinishReason::cancelled);
  EXPECT_EQ(collect(*stays, 1)[0].tokens, expected_tokens({1, 2}, {.seed = 1}, 20));
}

TEST(Cancel, of_one_choice_leaves_the_other) {
  const auto engine = fake_engine();
  GenerateRequest asked = request({1, 2}, 4000);
  asked.choices = 2;
  auto generation = engine->submit(std::move(asked)).value();
  (void)generation->next();
  generation->cancel(0);
  const auto got = collect(*generation, 2);
  EXPECT_EQ(got[0].finish, FinishReason::cancelled);
  EXPECT_EQ(got[1].finish, FinishReason::length);
}

TEST(Cancel, of_the_first_choice_in_the_prompt_leaves_the_prompt_to_the_others) {
  Gate gate;
  const auto engine = fake_engine({.before_step = gate.hook()});
  GenerateRequest asked = request(std::vector<int32_t>(100, 2), 5);
  asked.choices = 3;
  auto generation = engine->submit(std::move(asked)).value();
  gate.wait_for_steps(1);
  generation->cancel(0);
  gate.open();
  const auto got = collect(*generation, 3);
  EXPECT_EQ(got[0].finish, FinishReason::cancelled);
  EXPECT_EQ(got[1].tokens, expected_tokens(std::vector<int32_t>(100, 2), {.seed = 1}, 5, 1));
  EXPECT_EQ(got[2].tokens, expected_tokens(std::vector<int32_t>(100, 2), {.seed = 1}, 5, 2));
}

// server-090: the prompt is computed in chunks, and a closed socket ends it at the next one.
TEST(Cancel, in_a_long_prompt_computes_no_further_chunk) {
  Gate gate;
  const auto engine = fake_engine({.max_step_rows = 16, .before_step = gate.hook()});
  auto generation = engine->submit(request(std::vector<int32_t>(4000, 1), 10)).value();
  gate.wait_for_steps(1);
  generation.reset();
  wait_until([&] { return engine->stats().active == 0 && engine->stats().waiting == 0; });
  gate.open();
  EXPECT_LE(engine->stats().steps, 1);
  expect_answers_still(engine);
}

TEST(Cancel, by_the_callback_itself_and_dropping_the_handle_there) {
  const auto engine = fake_engine();
  std::mutex mutex;
  std::condition_variable done;
  int events = 0;
  bool dropped = false;
  std::unique_ptr<Generation> generation;
  std::unique_lock lock(mutex);
  generation = engine
                   ->submit(request({1}, 100),
                            [&](const TokenEvent&) {
                              const std::lock_guard inner(mutex);
                              if (++events < 3) return;
                              generation.reset();
                              dropped = true;
                              done.notify_all();
                            })
                   .value();
  done.wait(lock, [&] { return dropped; });
  lock.unlock();
  wait_until([&] { return engine->stats().active == 0; });
  EXPECT_EQ(events, 3);
  expect_answers_still(engine);
}

TEST(Cancel, no_callback_comes_after_the_handle_is_gone) {
  const auto engine = fake_engine();
  for (int i = 0; i < 100; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    auto generation =
        engine->submit(request({i % 64}, 200), [raw = alive.get()](const TokenEvent&) { ++*raw; }).value();
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
    generation.reset();
    alive.reset();  // a later callback would write to freed memory
  }
  expect_answers_still(engine);
}

TEST(Shutdown, every_request_under_way_gets_its_end) {
  Gate gate;
  auto engine = fake_engine({.before_step = gate.hook()}, {.max_sessions = 2});
  std::vector<std::unique_ptr<Generation>> all;
  for (int32_t i = 0; i < 6; ++i) all.push_back(engine->submit(request({i}, 50)).value());
  gate.wait_for_steps(1);
  engine.engine.reset();
  for (auto& generation : all) EXPECT_EQ(collect(*generation, 1)[0].finish, FinishReason::cancelled);
  EXPECT_EQ(engine.fake->counters.sequences, 0);
  all[0]->cancel();  // after the engine, without harm
}

TEST(Faults, non_finite_logits_end_one_answer_and_no_other) {
  const auto engine = fake_engine({.poison_token = 50});
  std::vector<std::unique_ptr<Generation>> all;
  for (int32_t i = 0; i < 3; ++i) {
    GenerateRequest asked = request({i + 1, i == 1 ? 50 : 2}, 40);
    asked.sampling.logit_bias = {{50, -100.F}};
    all.push_back(engine->submit(std::move(asked)).value());
  }
  for (size_t i = 0; i < 3; ++i) {
    const Answer got = collect(*all[i], 1)[0];
    EXPECT_EQ(got.finish, i == 1 ? FinishReason::error : FinishReason::length);
    if (i == 1) EXPECT_EQ(got.error.value().code, Code::numerics);
  }
}

// A fault of one row fails the whole step; the engine finds whose it was.
TEST(Faults, a_step_that_fails_for_one_sequence_is_run_again_without_it) {
  FakeOptions options;
  options.before_step = [](const Step& step, const CancelToken&) -> Result<void> {
    for (const Row& row : step.rows)
      if (row.token == 50) return error(Code::numerics, "token 50 breaks this model");
    return {};
  };
  const auto engine = fake_engine(options);
  std::vector<std::unique_ptr<Generation>> all;
  for (int32_t i = 0; i < 4; ++i) {
    GenerateRequest asked = request({i + 1, i == 2 ? 50 : 7, 9}, 30);
    asked.sampling.logit_bias = {{50, -100.F}};
    all.push_back(engine->submit(std::move(asked)).value());
  }
  for (size_t i = 0; i < 4; ++i) {
    const Answer got = collect(*all[i], 1)[0];
    EXPECT_EQ(got.finish, i == 2 ? FinishReason::error : FinishReason::length);
    if (i == 2) EXPECT_THAT(got.error.value().message, HasSubstr("token 50"));
    if (i != 2) {
      SamplingParams params = {.seed = 1};
      params.logit_bias = {{50, -100.F}};
      EXPECT_EQ(got.tokens, expected_tokens({static_cast<int32_t>(i) + 1, 7, 9}, params, 30));
    }
  }
}

TEST(Faults, a_target_that_claims_to_be_cancelled_is_not_believed_forever) {
  FakeOptions options;
  options.before_step = [](const Step&, const CancelToken&) -> Result<void> {
    return error(Code::cancelled, "so I say");
  };
  const auto engine = fake_engine(options);
  EXPECT_EQ(answer(*engine, request({1}, 3)).finish, FinishReason::error);
}

TEST(Faults, a_target_without_memory_for_a_sequence_ends_that_request_clearly) {
  const auto engine = fake_engine({.memory_limit_tokens = 100});  // less than it promised
  const Answer got = answer(*engine, request(std::vector<int32_t>(300, 1), 3));
  EXPECT_EQ(got.finish, FinishReason::error);
  EXPECT_EQ(got.error.value().code, Code::out_of_memory);
}

// Room for 1,024 tokens and four answers that want 600 each: some are set aside, computed again, and nobody can tell.
TEST(Memory, answers_that_do_not_fit_together_wait_and_come_out_the_same) {
  for (const FakeMemory memory : {FakeMemory::free, FakeMemory::recurrent}) {
    const auto engine = fake_engine({.max_context = 1024, .memory = memory}, {.memory_bytes = 1100 + 1024 * 100});
    std::vector<std::unique_ptr<Generation>> all;
    for (int32_t i = 0; i < 4; ++i) all.push_back(engine->submit(request({i, 1}, 600)).value());
    for (int32_t i = 0; i < 4; ++i)
      EXPECT_EQ(collect(*all[static_cast<size_t>(i)], 1)[0].tokens, expected_tokens({i, 1}, {.seed = 1}, 600));
    EXPECT_GT(engine->stats().preemptions, 0);
    EXPECT_LE(engine.fake->counters.tokens, 1024);
  }
}

TEST(Memory, choices_that_do_not_fit_together_come_out_the_same) {
  const auto engine = fake_engine({.max_context = 1024}, {.memory_bytes = 1100 + 1024 * 100});
  GenerateRequest asked = request(Random(1).tokens(300, 64), 400);
  asked.choices = 4;
  const auto got = answers(*engine, std::move(asked));
  for (uint32_t choice = 0; choice < 4; ++choice)
    EXPECT_EQ(got[choice].tokens, expected_tokens(Random(1).tokens(300, 64), {.seed = 1}, 400, choice));
}

TEST(Memory, what_is_cached_gives_way_to_what_runs) {
  const auto engine = fake_engine({.max_context = 1024}, {.memory_bytes = 1100 + 1024 * 100});
  for (int32_t i = 0; i < 5; ++i) {
    const auto prompt = Random(static_cast<uint64_t>(i)).tokens(700, 64);
    EXPECT_EQ(answer(*engine, request(prompt, 20)).tokens, expected_tokens(prompt, {.seed = 1}, 20));
  }
  EXPECT_EQ(engine->stats().preemptions, 0);
}

TEST(Memory, the_cache_keeps_to_its_budget) {
  const auto engine = fake_engine({.bytes_per_token = 1}, {.prefix_cache_bytes = 600});
  for (int32_t i = 0; i < 5; ++i) answer(*engine, request({i, 1, 2}, 3));
  wait_until([&] { return engine->stats().active == 0; });
  EXPECT_LE(engine->stats().cached_bytes, 600);
  EXPECT_EQ(answer(*engine, request({4, 1, 2}, 3)).usage.reused_tokens, 2);
  EXPECT_EQ(answer(*engine, request({0, 1, 2}, 3)).usage.reused_tokens, 0);
}

TEST(Memory, a_context_that_cannot_fit_is_refused_before_anything_runs) {
  auto refused =
      Engine::create(std::make_unique<onw::testing::FakeExecutable>(), {.context_tokens = 4000, .memory_bytes = 50000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::out_of_memory);
  EXPECT_THAT(refused.error().message, HasSubstr("would fit"));
}

// server-095, and server-091 without its drafts: many clients that stay, leave early, or never listen.
TEST(Storm, of_clients_that_come_and_go_leaves_a_working_engine) {
  const auto engine = fake_engine({}, {.max_sessions = 5});
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      Random random(client);
      for (int round = 0; round < 25; ++round) {
        const auto prompt = random.tokens(1 + random.below(40), 64);
        GenerateRequest asked = request(prompt, 30, client);
        asked.choices = 1 + static_cast<int>(random.below(3));
        const int choices = asked.choices;
        std::atomic<int> ends = 0;
        const bool listens = random.chance(0.5);
        auto generation =
            listens ? engine->submit(std::move(asked)).value()
                    : engine
                          ->submit(std::move(asked),
                                   [&](const TokenEvent& event) { ends += event.finish != FinishReason::none ? 1 : 0; })
                          .value();
        if (listens && random.chance(0.5)) {
          const auto got = collect(*generation, choices);
          EXPECT_EQ(got[0].tokens, expected_tokens(prompt, {.seed = client}, 30));
        } else if (random.chance(0.5)) {
          generation->cancel();
        }
      }
    });
  }
  for (auto& client : clients) client.join();
  wait_until([&] { return engine->stats().active == 0 && engine->stats().waiting == 0; });
  expect_answers_still(engine);
}

// server-098
TEST(Idle, costs_no_processor_time) {
  const auto engine = fake_engine();
  expect_answers_still(engine);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(used() - before, 0.005);
}

}  // namespace
}  // namespace onw
