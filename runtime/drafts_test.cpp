// Drafting in the engine: the text is the same with it and without, whatever is asked, and it does draft.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/testing/engine_driver.h"
#include "runtime/testing/fake_mtp.h"
#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::answer;
using onw::testing::Answer;
using onw::testing::answers;
using onw::testing::fake_engine;
using onw::testing::fake_hash;
using onw::testing::fake_logits;
using onw::testing::fake_mtp_engine;
using onw::testing::FakeEngine;
using onw::testing::FakeMemory;
using onw::testing::FakeOptions;
using onw::testing::Random;
using ::testing::HasSubstr;

// A model whose texts repeat themselves, and whose steps all take the same time, so that drafts pay.
FakeOptions repetitive(std::chrono::microseconds step = std::chrono::microseconds(60)) {
  FakeOptions options;
  options.vocabulary = 16;
  options.remembers = false;
  options.even_step = step;
  return options;
}

// Who drafts: what was said before, the layer that predicts further tokens, the ladder of both; or that layer with a
// head that knows half of the tokens.
enum class Drafts : uint8_t { lookup, mtp, both, short_mtp };
constexpr Drafts kDrafts[] = {Drafts::lookup, Drafts::mtp, Drafts::both, Drafts::short_mtp};

FakeEngine drafting(const FakeOptions& model, Drafts by, EngineOptions options = {}) {
  options.prompt_lookup = by == Drafts::lookup || by == Drafts::both;
  if (by == Drafts::lookup) return fake_engine(model, options);
  return fake_mtp_engine(model, options, {.short_vocabulary = by == Drafts::short_mtp ? model.vocabulary / 2 : 0});
}

struct Event {
  int32_t id;
  float logprob;
  std::vector<int32_t> top;
  FinishReason finish;
  bool operator==(const Event&) const = default;
};

struct Told {
  std::vector<std::vector<Event>> choices;
  Usage usage;  // of the last event
};

Told tell(Engine& engine, GenerateRequest request) {
  Told told{std::vector<std::vector<Event>>(static_cast<size_t>(request.choices)), {}};
  auto generation = engine.submit(std::move(request)).value();
  while (const auto event = generation->next()) {
    Event e{event->id, event->logprob, {}, event->finish};
    for (const TokenLogprob& rival : event->top) e.top.push_back(rival.id);
    told.choices[static_cast<size_t>(event->choice)].push_back(std::move(e));
    told.usage = event->usage;
  }
  return told;
}

class Alternate : public LogitMask {  // even, odd, even, ...
 public:
  explicit Alternate(int32_t parity) : parity_(parity) {}
  Result<void> allow(std::span<uint32_t> bits) override {
    for (int32_t id = parity_; id < 16; id += 2) bits[0] |= 1U << id;
    return {};
  }
  Result<void> accept(int32_t id) override {
    if (id % 2 != parity_) return error(Code::internal, "token {} was not allowed", id);
    parity_ = 1 - parity_;
    return {};
  }
  Result<std::unique_ptr<LogitMask>> fork() const override { return std::make_unique<Alternate>(parity_); }

 private:
  int32_t parity_;
};

GenerateRequest asked(int64_t max_tokens, SamplingParams sampling = {.temperature = 0.6F, .seed = 3}) {
  return {.prompt = {1, 2, 3}, .sampling = std::move(sampling), .max_tokens = max_tokens};
}

using MakeRequest = std::function<GenerateRequest()>;

const std::pair<const char*, MakeRequest> kRequests[] = {
    {"greedy", [] { return asked(150, {.temperature = 0}); }},
    {"sampled", [] { return asked(150); }},
    {"hot", [] { return asked(150, {.temperature = 1.5F, .seed = 8}); }},
    {"top_k, top_p, min_p", [] { return asked(150, {.top_k = 6, .top_p = 0.8F, .min_p = 0.02F, .seed = 4}); }},
    {"penalties",
     [] {
       return asked(150, {.temperature = 0.5F,
                          .repetition_penalty = 1.1F,
                          .presence_penalty = 0.2F,
                          .frequency_penalty = 0.05F,
                          .seed = 5});
     }},
    {"logit bias", [] { return asked(150, {.temperature = 0.5F, .logit_bias = {{3, 2.0F}}, .seed = 6}); }},
    {"logprobs",
     [] {
       auto r = asked(100);
       r.logprobs = 3;
       return r;
     }},
    {"a mask",
     [] {
       auto r = asked(150);
       r.mask = std::make_unique<Alternate>(0);
       return r;
     }},
    {"several choices",
     [] {
       auto r = asked(80);
       r.choices = 3;
       return r;
     }},
    {"one token", [] { return asked(1); }},
    {"two tokens", [] { return asked(2); }},
    {"to the end of the context", [] { return asked(-1); }},
    {"a stop id",
     [] {
       auto r = asked(-1, {.temperature = 0.7F, .seed = 11});
       r.stop_ids = {9};
       return r;
     }},
};

// numerics-068
TEST(Drafts, the_answer_is_the_same_to_the_bit_with_them_and_without) {
  int64_t accepted[4] = {}, rejected[4] = {};
  for (const FakeMemory memory : {FakeMemory::free, FakeMemory::ring, FakeMemory::recurrent})
    for (const auto& [mixes, by] : {std::pair{true, Drafts::lookup},
                                    {false, Drafts::lookup},
                                    {true, Drafts::mtp},
                                    {false, Drafts::mtp},
                                    {true, Drafts::both},
                                    {true, Drafts::short_mtp}}) {
      FakeOptions model = repetitive(std::chrono::microseconds(20));
      model.memory = memory;
      model.mixes = mixes;
      model.max_context = 300;
      const auto plain = fake_engine(model, {.prompt_lookup = false});
      const auto drafting_one = drafting(model, by);
      const auto kind = static_cast<size_t>(by);
      for (const auto& [name, request] : kRequests) {
        const Told expected = tell(*plain, request());
        const Told got = tell(*drafting_one, request());
        ASSERT_EQ(got.choices, expected.choices) << name;
        EXPECT_EQ(got.usage.completion_tokens, expected.usage.completion_tokens) << name;
        EXPECT_EQ(got.usage.reused_tokens, expected.usage.reused_tokens) << name;  // as much is kept
        EXPECT_EQ(expected.usage.drafted_tokens, 0);
        accepted[kind] += got.usage.accepted_tokens;
        rejected[kind] += got.usage.drafted_tokens - got.usage.accepted_tokens;
        if (by == Drafts::lookup) EXPECT_EQ(got.usage.mtp_drafted_tokens, 0) << name;
        if (by == Drafts::mtp) EXPECT_EQ(got.usage.mtp_drafted_tokens, got.usage.drafted_tokens) << name;
      }
      EXPECT_LT(drafting_one.fake->counters.steps, plain.fake->counters.steps);
    }
  for (const Drafts by : kDrafts) {  // of drafts right and wrong there were many
    EXPECT_GT(accepted[static_cast<size_t>(by)], 1000) << static_cast<int>(by);
    EXPECT_GT(rejected[static_cast<size_t>(by)], 100) << static_cast<int>(by);
  }
}

TEST(Drafts, the_answer_is_the_same_in_company) {
  const auto alone = fake_engine(repetitive(), {.prompt_lookup = false});
  const auto request = [](uint64_t i) {
    GenerateRequest r = asked(120, {.temperature = 0.6F, .seed = i});
    r.prompt = Random(i).tokens(1 + static_cast<int64_t>(i) * 30, 16);
    return r;
  };
  for (const Drafts by : kDrafts) {
    std::atomic<bool> all_asked = true;  // steps at the start time the layer
    FakeOptions model = repetitive();
    model.before_step = [&](const Step&, const CancelToken&) -> Result<void> {
      all_asked.wait(false);
      return {};
    };
    const auto busy = drafting(model, by);
    all_asked = false;
    std::vector<std::unique_ptr<Generation>> all;
    for (uint64_t i = 0; i < 6; ++i) all.push_back(busy->submit(request(i)).value());
    all_asked = true;
    all_asked.notify_all();
    for (uint64_t i = 0; i < 6; ++i)
      EXPECT_EQ(onw::testing::collect(*all[i], 1)[0].tokens, answer(*alone, request(i)).tokens) << i;
    EXPECT_EQ(busy.fake->counters.most_sequences_in_a_step, 6);
    EXPECT_GT(busy->stats().accepted_tokens, 0);
    EXPECT_EQ(busy->stats().mtp_accepted_tokens > 0, by != Drafts::lookup);
  }
}

TEST(Drafts, a_step_has_no_more_rows_than_may_be_kept_in_part) {
  std::atomic<int64_t> most_of_a_sequence = 0;
  for (const int limit : {1, 2, 4}) {
    FakeOptions model = repetitive();
    model.max_partial_rows = limit;
    model.before_step = [&](const Step& step, const CancelToken&) -> Result<void> {
      for (size_t s = 0; s < step.sequences.size(); ++s)
        most_of_a_sequence =
            std::max<int64_t>(most_of_a_sequence, std::ranges::count(step.rows, static_cast<int>(s), &Row::sequence));
      return {};
    };
    most_of_a_sequence = 0;
    const auto engine = fake_engine(model);
    GenerateRequest request = asked(200, {.temperature = 0});
    request.prompt = {1};
    const Answer got = answer(*engine, std::move(request));
    EXPECT_LE(most_of_a_sequence, limit);
    EXPECT_EQ(got.usage.accepted_tokens > 0, limit > 1);
  }
}

// Only a guess has seen that token: its row must not end the answer.
TEST(Drafts, a_wrong_guess_that_breaks_the_numbers_ends_no_answer) {
  FakeOptions model = repetitive();
  model.vocabulary = 64;
  for (int32_t i = 20; i < 40; ++i) model.follows[i] = i + 1;
  model.follows[40] = 20;
  int64_t failed = 0;
  model.before_step = [&failed](const Step& step, const CancelToken&) -> Result<void> {
    for (const Row& row : step.rows)
      if (row.token == 63 && row.wants_logits) {
        ++failed;
        return error(Code::numerics, "no numbers");
      }
    return {};
  };
  GenerateRequest request = asked(100, {.temperature = 0});
  request.prompt = {38, 39, 63, 63, 7, 20};  // as if 39 were followed by 63
  const auto engine = fake_engine(model);
  const Answer got = answer(*engine, std::move(request));
  EXPECT_EQ(got.finish, FinishReason::length);
  EXPECT_FALSE(got.error);
  ASSERT_EQ(got.tokens.size(), 100U);
  for (size_t i = 0; i < got.tokens.size(); ++i) EXPECT_EQ(got.tokens[i], 20 + static_cast<int32_t>((i + 1) % 21));
  EXPECT_GT(failed, 0);
}

TEST(Drafts, a_callback_that_cancels_ends_the_answer_within_the_draft) {
  const auto engine = fake_engine(repetitive());
  for (const int stop_after : {20, 33, 34, 35, 36, 60}) {
    std::unique_ptr<Generation> generation;
    std::atomic<int> tokens = 0;
    std::atomic<bool> ready = false, over = false;
    const auto callback = [&](const TokenEvent& event) {
      while (!ready) std::this_thread::yield();
      if (event.id >= 0 && ++tokens == stop_after) generation->cancel();
      if (event.finish != FinishReason::none) {
        EXPECT_EQ(event.finish, FinishReason::cancelled);
        over = true;
      }
    };
    GenerateRequest request = asked(-1, {.temperature = 0});
    generation = engine->submit(std::move(request), callback).value();
    ready = true;
    while (!over) std::this_thread::yield();
    EXPECT_EQ(tokens, stop_after);
  }
  EXPECT_EQ(answer(*engine, asked(5)).tokens.size(), 5U);
}

// server-091
TEST(Drafts, answers_dropped_at_random_moments_leave_nothing_behind) {
  for (const Drafts by : {Drafts::lookup, Drafts::mtp}) {
    const auto engine = drafting(repetitive(), by);
    Random random(4);
    for (int i = 0; i < 60; ++i) {
      auto generation = engine->submit(asked(-1, {.temperature = 0.6F, .seed = static_cast<uint64_t>(i)})).value();
      for (int64_t n = random.below(60); n > 0; --n) (void)generation->next();
    }
    EXPECT_EQ(answer(*engine, asked(50)).tokens.size(), 50U);
    EXPECT_GT(engine->stats().drafted_tokens, 0);
    for (int i = 0; i < 400 && engine->stats().active > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(engine->stats().active, 0);
  }
}

TEST(Drafts, a_layer_that_fails_costs_no_answer) {
  const auto engine = fake_mtp_engine(repetitive(), {.prompt_lookup = false}, {.fails = true});
  const Answer got = answer(*engine, asked(100));
  EXPECT_EQ(got.finish, FinishReason::length);
  EXPECT_EQ(got.tokens, answer(*fake_engine(repetitive(), {.prompt_lookup = false}), asked(100)).tokens);
  EXPECT_EQ(got.usage.drafted_tokens, 0);
  EXPECT_GT(engine->stats().mtp_errors, 0);
}

// A step of many rows takes as long as one; a layer that takes as long as the model does can only lose.
TEST(Drafts, a_layer_that_costs_more_than_it_gains_is_left_alone) {
  const auto step = std::chrono::microseconds(400);
  const auto engine = fake_mtp_engine(repetitive(step), {.prompt_lookup = false}, {.wrong = 0.9, .step = step * 2});
  const Answer got = answer(*engine, asked(300));
  EXPECT_LE(got.usage.drafted_tokens, 30);
}

// Most of what is drawn is beyond the short head, or within it: whichever promises more is used.
TEST(Drafts, the_short_head_is_used_where_it_covers_what_is_drawn) {
  for (const bool within : {true, false}) {
    FakeOptions model = repetitive(std::chrono::microseconds(200));
    for (int32_t i = 0; i < 16; ++i) model.follows[i] = within ? (i + 1) % 8 : 8 + (i + 1) % 8;
    auto executable = std::make_unique<onw::testing::FakeExecutable>(model);
    EngineOptions options{.memory_bytes = int64_t{1} << 40, .prompt_lookup = false};
    onw::testing::use_clock_of(executable->shared(), options);
    auto layer = std::make_unique<onw::testing::FakeMtp>(
        std::move(executable),
        onw::testing::FakeMtpOptions{.wrong = 0, .short_vocabulary = 8, .step = std::chrono::microseconds(80)});
    const auto* seen = layer.get();
    const auto engine = Engine::create(std::move(layer), options);
    ASSERT_TRUE(engine);
    answer(**engine, asked(600, {.temperature = 0}));
    const int64_t early = seen->guessed_short;
    answer(**engine, asked(300, {.temperature = 0}));
    EXPECT_EQ(seen->guessed_short - early > 10, within);
  }
}

TEST(Drafts, are_left_out_where_the_engine_or_the_request_says_so) {
  const auto off = fake_engine(repetitive(), {.prompt_lookup = false});
  EXPECT_EQ(answer(*off, asked(100, {.temperature = 0})).usage.drafted_tokens, 0);
  const auto on = fake_engine(repetitive());
  GenerateRequest request = asked(100, {.temperature = 0});
  request.drafts = false;
  EXPECT_EQ(answer(*on, std::move(request)).usage.drafted_tokens, 0);
  EXPECT_GT(answer(*on, asked(100, {.temperature = 0})).usage.drafted_tokens, 0);
}

TEST(Drafts, earlier_conversations_are_looked_through_only_where_asked) {
  for (const bool asked_for : {false, true}) {
    FakeOptions model = repetitive();
    model.vocabulary = 512;
    for (int32_t i = 100; i < 400; ++i) model.follows[i] = i + 1;
    const auto engine = fake_engine(model, {.lookup_in_earlier = asked_for});
    GenerateRequest first = asked(200, {.temperature = 0}), second = asked(150, {.temperature = 0});
    first.prompt = {5, 100};
    second.prompt = {6, 120};
    answer(*engine, std::move(first));
    EXPECT_EQ(answer(*engine, std::move(second)).usage.accepted_tokens > 50, asked_for);
  }
}

// ---- The distribution

// Of `counts` [rows][n] against the probabilities that each row should have: the statistic, by a normal deviate
// (Wilson and Hilferty, 1931).
double chi_square_deviate(const std::vector<std::vector<int64_t>>& counts,
                          const std::vector<std::vector<double>>& probabilities) {
  double statistic = 0, freedom = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    double total = 0;
    for (const int64_t n : counts[r]) total += static_cast<double>(n);
    double cells = 0, rest_seen = 0, rest_expected = 0;
    const auto add = [&](double seen, double expected) {
      statistic += (seen - expected) * (seen - expected) / expected;
      ++cells;
    };
    for (size_t i = 0; i < counts[r].size(); ++i) {
      const double expected = total * probabilities[r][i];
      if (expected >= 10) {
        add(static_cast<double>(counts[r][i]), expected);
      } else {
        rest_seen += static_cast<double>(counts[r][i]);
        rest_expected += expected;
      }
    }
    if (rest_expected >= 10) add(rest_seen, rest_expected);
    freedom += std::max(0.0, cells - 1);
  }
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

constexpr int32_t kWords = 8;
constexpr int64_t kSamples = 100'000;

// What the fake that forgets says after each token.
std::vector<std::vector<double>> distributions() {
  std::vector<std::vector<double>> all;
  for (int32_t token = 0; token < kWords; ++token) {
    std::vector<float> logits(kWords);
    fake_logits(fake_hash(0, token, 0), logits);
    std::vector<double> p;
    double sum = 0;
    for (const float x : logits) sum += p.emplace_back(std::exp(static_cast<double>(x)));
    for (double& x : p) x /= sum;
    all.push_back(std::move(p));
  }
  return all;
}

std::vector<std::vector<int64_t>> pairs(const std::vector<int32_t>& text) {
  std::vector<std::vector<int64_t>> counts(kWords, std::vector<int64_t>(kWords, 0));
  for (size_t i = 1; i < text.size(); ++i) ++counts[static_cast<size_t>(text[i - 1])][static_cast<size_t>(text[i])];
  return counts;
}

class DraftedDistribution : public ::testing::TestWithParam<Drafts> {};
INSTANTIATE_TEST_SUITE_P(Drafts, DraftedDistribution, ::testing::Values(Drafts::lookup, Drafts::mtp));

TEST_P(DraftedDistribution, is_the_models) {
  FakeOptions model = repetitive();
  model.vocabulary = kWords;
  model.max_context = kSamples + 1;
  const auto engine = drafting(model, GetParam(), {.context_tokens = kSamples + 1});
  std::vector<int32_t> text;
  std::atomic<bool> over = false;
  Usage usage;
  const auto generation =
      engine->submit({.prompt = {0}, .sampling = {.seed = 17}, .max_tokens = kSamples}, [&](const TokenEvent& event) {
        text.push_back(event.id);
        usage = event.usage;
        if (event.finish != FinishReason::none) over = true;
      });
  ASSERT_TRUE(generation);
  while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(static_cast<int64_t>(text.size()), kSamples);
  EXPECT_GT(usage.accepted_tokens, kSamples / 10);  // of what was drawn, many tokens had been drafted
  EXPECT_GT(usage.drafted_tokens - usage.accepted_tokens, kSamples / 50);
  EXPECT_LT(std::abs(chi_square_deviate(pairs(text), distributions())), 3.7);  // 2 in 10,000 by chance
}

// That the statistic sees it where drafts are taken that should not be: those that are merely likely (above a chance of
// 0.3), or drawn anew after they were refused, from all tokens instead of the others.
TEST(Drafts, the_statistic_sees_rules_that_are_not_exact) {
  const auto p = distributions();
  Random random(21);
  const auto likeliest = [&](int32_t after) {
    const auto& row = p[static_cast<size_t>(after)];
    return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
  };
  const auto drawn = [&](int32_t after) {
    double mark = random.uniform();
    int32_t token = 0;
    while (token + 1 < kWords && mark >= p[static_cast<size_t>(after)][static_cast<size_t>(token)])
      mark -= p[static_cast<size_t>(after)][static_cast<size_t>(token++)];
    return token;
  };
  std::vector<int32_t> exact = {0}, likely = {0}, anew = {0};
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto chance = [&](int32_t after, int32_t draft) {
      return p[static_cast<size_t>(after)][static_cast<size_t>(draft)];
    };
    exact.push_back(drawn(exact.back()));
    const auto draft = static_cast<int32_t>(random.below(kWords));
    likely.push_back(chance(likely.back(), draft) > 0.3 ? draft : drawn(likely.back()));
    const int32_t best = likeliest(anew.back());
    anew.push_back(random.chance(chance(anew.back(), best)) ? best : drawn(anew.back()));
  }
  EXPECT_LT(std::abs(chi_square_deviate(pairs(exact), p)), 3.7);
  EXPECT_GT(chi_square_deviate(pairs(likely), p), 10);
  EXPECT_GT(chi_square_deviate(pairs(anew), p), 10);
}

}  // namespace
}  // namespace onw
