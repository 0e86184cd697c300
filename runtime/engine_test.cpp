#include "runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/testing/engine_driver.h"
#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::answer;
using onw::testing::Answer;
using onw::testing::answers;
using onw::testing::expected_tokens;
using onw::testing::fake_engine;
using onw::testing::FakeMemory;
using onw::testing::Random;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GenerateRequest request(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed = 1) {
  return {.prompt = std::move(prompt), .sampling = {.seed = seed}, .max_tokens = max_tokens};
}

TEST(Engine, answers_what_the_model_says_from_scratch) {
  const auto engine = fake_engine();
  const std::vector<int32_t> prompt = {5, 6, 7};
  const Answer got = answer(*engine, request(prompt, 20, 7));
  EXPECT_EQ(got.tokens, expected_tokens(prompt, {.seed = 7}, 20));
  EXPECT_EQ(got.finish, FinishReason::length);
  EXPECT_EQ(got.usage.prompt_tokens, 3);
  EXPECT_EQ(got.usage.completion_tokens, 20);
  EXPECT_GT(got.usage.decode_seconds, 0);
}

// What a target does for itself, such as loading graphs, it does between answers.
TEST(Engine, tells_the_target_when_no_answer_is_under_way) {
  std::atomic<bool> resting = false, rested_in_a_step = false;
  const auto engine = fake_engine({.before_step = [&](const Step&, const CancelToken&) -> Result<void> {
                                     rested_in_a_step = rested_in_a_step || resting;
                                     return {};
                                   },
                                   .on_rest = [&](bool rests) { resting = rests; }});
  for (int i = 0; i < 3; ++i) {
    answer(*engine, request({5, 6, 7}, 9));
    while (!resting) std::this_thread::yield();
  }
  EXPECT_FALSE(rested_in_a_step);
}

TEST(Engine, takes_a_prompt_of_one_token_and_refuses_one_of_none) {
  const auto engine = fake_engine();
  EXPECT_EQ(answer(*engine, request({9}, 3)).tokens, expected_tokens({9}, {.seed = 1}, 3));
  const auto refused = engine->submit(request({}, 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("no tokens"));
}

TEST(Engine, max_tokens_zero_computes_the_prompt_alone) {
  const auto engine = fake_engine();
  const Answer got = answer(*engine, request({1, 2, 3}, 0));
  EXPECT_THAT(got.tokens, IsEmpty());
  EXPECT_EQ(got.finish, FinishReason::length);
  EXPECT_EQ(got.usage.completion_tokens, 0);
  EXPECT_EQ(answer(*engine, request({1, 2, 3, 4}, 1)).usage.reused_tokens, 3);
}

TEST(Engine, max_tokens_one_gives_one) {
  const auto engine = fake_engine();
  EXPECT_EQ(answer(*engine, request({1, 2, 3}, 1)).tokens.size(), 1U);
}

TEST(Engine, a_stop_id_ends_the_answer_and_is_its_last_token) {
  const auto engine = fake_engine({.follows = {{3, 10}, {10, 11}, {11, 12}, {12, 13}}});
  GenerateRequest asked = request({1, 3}, -1);
  asked.stop_ids = {40, 12};
  const Answer got = answer(*engine, std::move(asked));
  EXPECT_THAT(got.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(got.finish, FinishReason::stop);
  EXPECT_EQ(got.usage.completion_tokens, 3);
}

// context-045
TEST(Engine, a_full_context_ends_the_answer_with_length_and_no_error) {
  const auto engine = fake_engine({.max_context = 50});
  const Answer got = answer(*engine, request(std::vector<int32_t>(20, 1), -1));
  EXPECT_EQ(got.tokens.size(), 30U);
  EXPECT_EQ(got.finish, FinishReason::length);
  EXPECT_FALSE(got.error);
  EXPECT_EQ(got.usage.prompt_tokens + got.usage.completion_tokens, 50);
}

// context-041
TEST(Engine, a_prompt_beyond_the_context_is_refused_with_both_numbers_and_never_cut) {
  const auto engine = fake_engine({.max_context = 50});
  EXPECT_EQ(answer(*engine, request(std::vector<int32_t>(49, 1), -1)).tokens.size(), 1U);
  EXPECT_EQ(answer(*engine, request(std::vector<int32_t>(50, 1), -1)).finish, FinishReason::length);
  const auto refused = engine->submit(request(std::vector<int32_t>(51, 1), -1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::context_overflow);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("n_prompt=51"), HasSubstr("n_ctx=50")));
}

TEST(Engine, what_is_out_of_range_is_named) {
  const auto engine = fake_engine();
  const auto message = [&](GenerateRequest asked) {
    const auto refused = engine->submit(std::move(asked));
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_THAT(message(request({1, 64}, 1)), AllOf(HasSubstr("prompt token 1"), HasSubstr("64")));
  EXPECT_THAT(message(request({-1}, 1)), HasSubstr("prompt token 0"));
  EXPECT_THAT(message(request({1}, -2)), HasSubstr("max_tokens"));
  GenerateRequest asked = request({1}, 1);
  asked.choices = 0;
  EXPECT_THAT(message(std::move(asked)), HasSubstr("choices"));
  asked = request({1}, 1);
  asked.logprobs = -2;
  EXPECT_THAT(message(std::move(asked)), HasSubstr("logprobs"));
  asked = request({1}, 1);
  asked.sampling.top_p = 2;
  EXPECT_THAT(message(std::move(asked)), HasSubstr("top_p"));
}

TEST(Engine, several_choices_share_the_prompt_and_differ_by_their_draws) {
  const auto engine = fake_engine();
  GenerateRequest asked = request({1, 2, 3, 4}, 8, 5);
  asked.choices = 4;
  const auto got = answers(*engine, std::move(asked));
  for (uint32_t choice = 0; choice < 4; ++choice)
    EXPECT_EQ(got[choice].tokens, expected_tokens({1, 2, 3, 4}, {.seed = 5}, 8, choice)) << choice;
  EXPECT_NE(got[0].tokens, got[1].tokens);
  EXPECT_EQ(engine.fake->counters.rows, 4 + 4 * 7);  // the prompt once; the last token of each is never computed
}

TEST(Engine, logprobs_come_where_asked) {
  const auto engine = fake_engine();
  GenerateRequest asked = request({1}, 2);
  asked.logprobs = 3;
  auto generation = engine->submit(std::move(asked)).value();
  const auto event = generation->next();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->top.size(), 3U);
  EXPECT_LT(event->logprob, 0);
  EXPECT_GE(event->top[0].logprob, event->top[1].logprob);
}

class Alternate : public LogitMask {  // even, odd, even, ...
 public:
  explicit Alternate(int32_t parity, int* alive) : parity_(parity), alive_(alive) { ++*alive_; }
  ~Alternate() override { --*alive_; }
  Result<void> allow(std::span<uint32_t> bits) override {
    for (int32_t id = parity_; id < 64; id += 2) bits[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    return {};
  }
  Result<void> accept(int32_t id) override {
    if (id % 2 != parity_) return error(Code::internal, "token {} was not allowed", id);
    parity_ = 1 - parity_;
    return {};
  }
  Result<std::unique_ptr<LogitMask>> fork() const override { return std::make_unique<Alternate>(parity_, alive_); }

 private:
  int32_t parity_;
  int* alive_;
};

TEST(Engine, each_choice_follows_its_own_mask) {
  int alive = 0;
  {
    const auto engine = fake_engine();
    GenerateRequest asked = request({1}, 9);
    asked.choices = 3;
    asked.mask = std::make_unique<Alternate>(0, &alive);
    for (const Answer& got : answers(*engine, std::move(asked))) {
      EXPECT_EQ(got.finish, FinishReason::length);
      ASSERT_EQ(got.tokens.size(), 9U);
      for (size_t i = 0; i < got.tokens.size(); ++i) EXPECT_EQ(got.tokens[i] % 2, static_cast<int32_t>(i % 2));
    }
  }
  EXPECT_EQ(alive, 0);
}

TEST(Engine, a_second_turn_computes_only_what_is_new) {
  for (const FakeMemory memory : {FakeMemory::free, FakeMemory::ring, FakeMemory::recurrent}) {
    const auto engine = fake_engine({.memory = memory});
    std::vector<int32_t> prompt = Random(1).tokens(100, 64);
    const Answer first = answer(*engine, request(prompt, 10));
    prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
    prompt.push_back(3);
    const Answer second = answer(*engine, request(prompt, 10));
    EXPECT_EQ(second.usage.reused_tokens, 109);  // the tenth token was drawn and never computed
    EXPECT_EQ(second.tokens, expected_tokens(prompt, {.seed = 1}, 10));
  }
}

// cache-051, cache-053: a state that cannot go back is restored from where the last message ended.
TEST(Engine, a_changed_last_message_goes_back_to_the_end_of_the_one_before) {
  const auto engine = fake_engine({.memory = FakeMemory::recurrent});
  const std::vector<int32_t> system = Random(1).tokens(40, 64);
  const auto ask = [&](const std::vector<int32_t>& user) {
    GenerateRequest asked = request(system, 5);
    asked.prompt.insert(asked.prompt.end(), user.begin(), user.end());
    asked.branch_points = {40, 40 + static_cast<int64_t>(user.size()) - 2};
    const std::vector<int32_t> prompt = asked.prompt;
    const Answer got = answer(*engine, std::move(asked));
    EXPECT_EQ(got.tokens, expected_tokens(prompt, {.seed = 1}, 5));
    return got.usage.reused_tokens;
  };
  EXPECT_EQ(ask({1, 2, 3, 4, 5}), 0);
  EXPECT_EQ(ask({9, 8, 7, 6}), 40);
  EXPECT_EQ(ask({1, 2, 3, 4, 5}), 43);  // regenerated: from where the generation prompt begins
}

// cache-051: the stride bounds what is computed again.
TEST(Engine, a_long_recurrent_conversation_keeps_a_state_every_1024_rows) {
  const auto engine = fake_engine({.max_context = 8192, .max_step_rows = 300, .memory = FakeMemory::recurrent});
  std::vector<int32_t> prompt = Random(2).tokens(5000, 64);
  answer(*engine, request(prompt, 1));
  prompt.resize(3500);
  const Answer got = answer(*engine, request(prompt, 4));
  EXPECT_EQ(got.usage.reused_tokens, 3072);
  EXPECT_EQ(got.tokens, expected_tokens(prompt, {.seed = 1}, 4));
}

// cache-056
TEST(Engine, the_length_of_a_prompt_against_the_chunk_changes_nothing) {
  for (const FakeMemory memory : {FakeMemory::free, FakeMemory::recurrent}) {
    for (const int64_t length : {15, 16, 17, 31, 32, 33, 35}) {
      const auto engine = fake_engine({.max_step_rows = 16, .memory = memory});
      const auto prompt = Random(static_cast<uint64_t>(length)).tokens(length, 64);
      EXPECT_EQ(answer(*engine, request(prompt, 5)).tokens, expected_tokens(prompt, {.seed = 1}, 5)) << length;
    }
  }
}

TEST(Engine, a_shared_system_prompt_is_computed_once_for_many_conversations) {
  const auto engine = fake_engine();
  const std::vector<int32_t> system = Random(1).tokens(200, 64);
  for (int32_t user = 0; user < 5; ++user) {
    std::vector<int32_t> prompt = system;
    prompt.insert(prompt.end(), {user, user, user});
    const Answer got = answer(*engine, request(prompt, 3));
    EXPECT_EQ(got.usage.reused_tokens, user == 0 ? 0 : 200);
    EXPECT_EQ(got.tokens, expected_tokens(prompt, {.seed = 1}, 3));
  }
}

// numerics-066
TEST(Engine, the_same_seed_gives_the_same_text_whatever_runs_beside_it) {
  for (const bool mixes : {true, false}) {
    const std::vector<int32_t> prompt = Random(3).tokens(150, 64);
    const auto alone = fake_engine({.mixes = mixes});
    const auto expected = answer(*alone, request(prompt, 60, 99)).tokens;
    EXPECT_EQ(expected, expected_tokens(prompt, {.seed = 99}, 60));

    const auto busy = fake_engine({.mixes = mixes});
    std::vector<std::unique_ptr<Generation>> neighbours;
    for (uint64_t i = 0; i < 3; ++i) {
      GenerateRequest noise = request(Random(i).tokens(70, 64), 200);
      noise.sampling = {.temperature = 1.5F, .top_p = 0.9F, .seed = std::nullopt};
      neighbours.push_back(busy->submit(std::move(noise)).value());
    }
    EXPECT_EQ(answer(*busy, request(prompt, 60, 99)).tokens, expected);
  }
}

TEST(Engine, sessions_run_together_in_one_step_where_the_target_mixes) {
  for (const bool mixes : {true, false}) {
    const auto engine = fake_engine({.mixes = mixes});
    std::vector<std::unique_ptr<Generation>> all;
    for (int32_t i = 0; i < 4; ++i) all.push_back(engine->submit(request({i, i, i}, 300)).value());
    for (int32_t i = 0; i < 4; ++i)
      EXPECT_EQ(onw::testing::collect(*all[static_cast<size_t>(i)], 1)[0].tokens,
                expected_tokens({i, i, i}, {.seed = 1}, 300));
    EXPECT_EQ(engine.fake->counters.most_sequences_in_a_step > 1, mixes);
  }
}

TEST(Engine, no_seed_is_a_new_text_each_time) {
  const auto engine = fake_engine();
  GenerateRequest a = request({1}, 30), b = request({1}, 30);
  a.sampling.seed = b.sampling.seed = std::nullopt;
  EXPECT_NE(answer(*engine, std::move(a)).tokens, answer(*engine, std::move(b)).tokens);
}

TEST(Engine, more_requests_than_sessions_wait_for_their_turn) {
  const auto engine = fake_engine({}, {.max_sessions = 2});
  std::vector<std::unique_ptr<Generation>> all;
  for (int32_t i = 0; i < 9; ++i) all.push_back(engine->submit(request({i}, 20)).value());
  for (int32_t i = 0; i < 9; ++i)
    EXPECT_EQ(onw::testing::collect(*all[static_cast<size_t>(i)], 1)[0].tokens, expected_tokens({i}, {.seed = 1}, 20));
  EXPECT_LE(engine.fake->counters.most_sequences_in_a_step, 2);
}

// The target thinks a row takes a nanosecond, and it takes a millisecond: chunks must come down to the bound all the
// same while somebody waits for tokens.
TEST(Engine, learns_how_long_steps_take_on_this_machine) {
  std::atomic<int64_t> largest_beside_a_decoder = 0;
  std::atomic<int> steps = 0;
  onw::testing::FakeOptions slow = {.max_step_rows = 256, .seconds_per_row = 2e-4};
  slow.before_step = [&](const Step& step, const CancelToken&) -> Result<void> {
    const auto rows = static_cast<int64_t>(step.rows.size());
    if (step.sequences.size() > 1 && ++steps > 5)
      largest_beside_a_decoder = std::max(largest_beside_a_decoder.load(), rows);
    std::this_thread::sleep_for(std::chrono::milliseconds(rows));
    return {};
  };
  const auto engine = fake_engine(slow, {.step_latency_seconds = 0.04});
  auto talker = engine->submit(request({1}, -1)).value();
  (void)talker->next();
  answer(*engine, request(Random(1).tokens(600, 64), 1));
  EXPECT_GT(largest_beside_a_decoder, 1);
  EXPECT_LE(largest_beside_a_decoder, 1 + 40);
}

TEST(Engine, says_which_context_it_took_and_why) {
  const auto engine = fake_engine({.max_context = 1000});
  EXPECT_EQ(engine->info().context_tokens, 1000);
  EXPECT_EQ(engine->info().context_reason, "the model's");
  auto refused = Engine::create(std::make_unique<onw::testing::FakeExecutable>(), {.context_tokens = 5000});
  EXPECT_FALSE(refused);
}

TEST(Engine, counts_what_it_did) {
  const auto engine = fake_engine();
  answer(*engine, request({1, 2, 3}, 5));
  answer(*engine, request({1, 2, 3}, 5));
  EngineStats stats = engine->stats();
  for (int i = 0; i < 200 && stats.active > 0; ++i) {  // the last event comes before the books are closed
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stats = engine->stats();
  }
  EXPECT_EQ(stats.active, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.requests, 2);
  EXPECT_EQ(stats.prompt_tokens, 6);
  EXPECT_EQ(stats.reused_tokens, 2);
  EXPECT_EQ(stats.completion_tokens, 10);
  EXPECT_GT(stats.cached_bytes, 0);
  EXPECT_EQ(stats.active_bytes, 0);
}

}  // namespace
}  // namespace onw
