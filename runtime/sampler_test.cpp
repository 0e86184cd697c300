#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace onw {
namespace {

using ::testing::HasSubstr;

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

int32_t draw_at(const SamplingParams& params, const std::vector<float>& logits, int64_t position) {
  Sampler sampler(params, params.seed.value_or(1), 0);
  return sampler.draw(logits, position, nullptr, -1).value().id;
}

// Which tokens come out of many draws, and how often.
std::map<int32_t, double> shares(const SamplingParams& params, const std::vector<float>& logits) {
  Sampler sampler(params, 42, 0);
  std::map<int32_t, double> shares;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) shares[sampler.draw(logits, i, nullptr, -1).value().id] += 1.0 / kDraws;
  return shares;
}

class Only : public LogitMask {
 public:
  explicit Only(std::set<int32_t> ids) : ids_(std::move(ids)) {}
  Result<void> allow(std::span<uint32_t> bits) override {
    for (const int32_t id : ids_) bits[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    return {};
  }
  Result<void> accept(int32_t) override { return {}; }
  Result<std::unique_ptr<LogitMask>> fork() const override { return std::make_unique<Only>(ids_); }

 private:
  std::set<int32_t> ids_;
};

TEST(Sampler, greedy_takes_the_likeliest_and_the_lowest_id_of_a_tie) {
  EXPECT_EQ(draw_at({.temperature = 0}, {1, 3, 2}, 0), 1);
  EXPECT_EQ(draw_at({.temperature = 0}, {1, 3, 3, 3}, 0), 1);
  EXPECT_EQ(draw_at({.temperature = 0}, {-5}, 0), 0);
}

TEST(Sampler, draws_tokens_as_often_as_the_model_says) {
  const std::vector<double> probabilities = {0.5, 0.1, 0.3, 0.1};
  const auto seen = shares({}, logs(probabilities));
  for (const auto& [id, share] : seen) EXPECT_NEAR(share, probabilities[static_cast<size_t>(id)], 0.015) << id;
}

TEST(Sampler, temperature_sharpens_and_flattens) {
  const auto logits = logs({0.8, 0.2});
  EXPECT_NEAR(shares({.temperature = 0.5F}, logits)[0], 0.64 / 0.68, 0.015);
  EXPECT_NEAR(shares({.temperature = 2.0F}, logits)[0], 2.0 / 3.0, 0.015);
  EXPECT_EQ(draw_at({.temperature = 1e-40F}, {1, 3, 2}, 0), 1);  // a subnormal temperature is greedy, not NaN
}

TEST(Sampler, top_k_keeps_k_and_prefers_low_ids_among_equals) {
  const auto seen = shares({.top_k = 2}, {1, 2, 2, 2, 0});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NEAR(seen.at(1), 0.5, 0.015);
  EXPECT_NEAR(seen.at(2), 0.5, 0.015);
  EXPECT_EQ(draw_at({.top_k = 1}, {0, 7, 7}, 5), 1);
  EXPECT_EQ(shares({.top_k = 99}, {0, 0, 0}).size(), 3U);
}

TEST(Sampler, top_p_keeps_the_fewest_that_reach_it) {
  const auto logits = logs({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(shares({.top_p = 0.45F}, logits).size(), 1U);
  const auto two = shares({.top_p = 0.7F}, logits);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 2.0 / 3.0, 0.015);
  EXPECT_EQ(shares({.top_p = 0.8F}, logits).size(), 3U);
  EXPECT_EQ(shares({.top_p = 1e-30F}, logits).size(), 1U);  // never none
}

TEST(Sampler, min_p_keeps_what_is_near_the_likeliest) {
  const auto logits = logs({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(shares({.min_p = 0.45F}, logits).size(), 2U);
  EXPECT_EQ(shares({.min_p = 1.0F}, logits).size(), 1U);
}

TEST(Sampler, top_k_comes_before_top_p) {
  // Of the two that top_k keeps, the first has 0.8: alone it reaches top_p, which it would not among all four.
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.75F}, logs({0.56, 0.14, 0.1, 0.1, 0.1})).size(), 1U);
}

TEST(Sampler, repetition_penalty_covers_prompt_and_answer_and_both_signs) {
  Sampler sampler({.temperature = 0, .repetition_penalty = 2}, 1, 0);
  sampler.see_prompt(std::vector<int32_t>{0});
  sampler.see_answer(1);
  EXPECT_EQ(sampler.draw(std::vector<float>{6, 6, 4}, 0, nullptr, -1)->id, 2);     // 3, 3, 4
  EXPECT_EQ(sampler.draw(std::vector<float>{-3, -3, -5}, 0, nullptr, -1)->id, 2);  // -6, -6, -5
}

TEST(Sampler, presence_and_frequency_count_the_answer_alone) {
  Sampler presence({.temperature = 0, .presence_penalty = 1}, 1, 0);
  Sampler frequency({.temperature = 0, .frequency_penalty = 1}, 1, 0);
  for (Sampler* s : {&presence, &frequency}) {
    s->see_prompt(std::vector<int32_t>{0, 0, 0});
    for (const int32_t id : {1, 1, 1, 2}) s->see_answer(id);
  }
  EXPECT_EQ(presence.draw(std::vector<float>{1, 4, 3.5F}, 0, nullptr, -1)->id, 1);   // 1, 3, 2.5
  EXPECT_EQ(frequency.draw(std::vector<float>{1.5F, 4, 3}, 0, nullptr, -1)->id, 2);  // 1.5, 1, 2
}

TEST(Sampler, logit_bias_forces_and_forbids) {
  EXPECT_EQ(draw_at({.temperature = 0, .logit_bias = {{2, 100.F}}}, {1, 3, 2}, 0), 2);
  EXPECT_EQ(shares({.logit_bias = {{1, -100.F}}}, {0, 5, 0}).count(1), 0U);
}

TEST(Sampler, a_mask_wins_over_everything) {
  Only mask({0, 33});
  std::vector<float> logits(40, 9);
  logits[33] = 1;
  Sampler greedy({.temperature = 0, .logit_bias = {{5, 100.F}}}, 1, 0);
  EXPECT_EQ(greedy.draw(logits, 0, &mask, -1)->id, 0);
  Sampler hot({.temperature = 100}, 1, 0);
  for (int i = 0; i < 200; ++i) {
    const int32_t id = hot.draw(logits, i, &mask, -1)->id;
    EXPECT_TRUE(id == 0 || id == 33) << id;
  }
}

TEST(Sampler, a_mask_that_allows_nothing_is_an_error) {
  Only mask({});
  Sampler sampler({}, 1, 0);
  const auto draw = sampler.draw(std::vector<float>{1, 2}, 7, &mask, -1);
  ASSERT_FALSE(draw);
  EXPECT_THAT(draw.error().message, HasSubstr("position 7"));
}

TEST(Sampler, the_draw_depends_on_seed_choice_and_position_and_on_nothing_before) {
  const std::vector<float> logits(1000, 0);
  Sampler a({}, 5, 0);
  std::vector<int32_t> forward;
  for (int i = 0; i < 20; ++i) forward.push_back(a.draw(logits, i, nullptr, -1)->id);
  Sampler b({}, 5, 0);
  for (int i = 19; i >= 0; --i) EXPECT_EQ(b.draw(logits, i, nullptr, -1)->id, forward[static_cast<size_t>(i)]);
  Sampler other_choice({}, 5, 1), other_seed({}, 6, 0);
  EXPECT_NE(other_choice.draw(logits, 0, nullptr, -1)->id, forward[0]);
  EXPECT_NE(other_seed.draw(logits, 0, nullptr, -1)->id, forward[0]);
}

TEST(Sampler, logprobs_are_the_models_own_and_come_sorted) {
  Sampler sampler({.temperature = 0, .logit_bias = {{3, 100.F}}}, 1, 0);
  const auto draw = sampler.draw(logs({0.25, 0.125, 0.25, 0.375}), 0, nullptr, 3).value();
  EXPECT_EQ(draw.id, 3);
  EXPECT_NEAR(draw.logprob, std::log(0.375), 1e-6);
  ASSERT_EQ(draw.top.size(), 3U);
  EXPECT_EQ(draw.top[0].id, 3);
  EXPECT_EQ(draw.top[1].id, 0);
  EXPECT_EQ(draw.top[2].id, 2);
  EXPECT_NEAR(draw.top[2].logprob, std::log(0.25), 1e-6);
  EXPECT_TRUE(sampler.draw(logs({0.5, 0.5, 1, 1}), 0, nullptr, 0)->top.empty());
  EXPECT_EQ(sampler.draw(logs({0.5, 0.5, 1, 1}), 0, nullptr, 99)->top.size(), 4U);
}

TEST(Sampler, non_finite_logits_end_the_answer) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Sampler sampler({.temperature = 0}, 1, 0);
    const auto draw = sampler.draw(std::vector<float>{0, 1, bad}, 0, nullptr, -1);
    ASSERT_FALSE(draw);
    EXPECT_EQ(draw.error().code, Code::numerics);
    EXPECT_THAT(draw.error().message, HasSubstr("token 2"));
  }
}

TEST(Sampler, the_largest_finite_logits_survive_every_parameter) {
  const float most = std::numeric_limits<float>::max();
  SamplingParams params{.temperature = 0.01F, .top_p = 0.9F, .min_p = 0.1F, .repetition_penalty = 0.01F};
  params.logit_bias = {{0, 1e6F}, {1, -1e6F}};
  Sampler sampler(params, 1, 0);
  sampler.see_prompt(std::vector<int32_t>{0, 1});
  EXPECT_EQ(sampler.draw(std::vector<float>{most, -most, 0}, 0, nullptr, 2)->id, 0);
}

TEST(SamplingParams, each_value_out_of_range_is_named) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<SamplingParams, const char*>> bad = {
      {{.temperature = -1}, "temperature"},
      {{.temperature = nan}, "temperature"},
      {{.temperature = 2.1F}, "temperature is 2.1, must be from 0 to 2"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.5F}, "top_p"},
      {{.min_p = -0.1F}, "min_p"},
      {{.repetition_penalty = 0}, "repetition_penalty"},
      {{.presence_penalty = nan}, "presence_penalty"},
      {{.frequency_penalty = 1e9F}, "frequency_penalty"},
      {{.logit_bias = {{8, 0.F}}}, "token 8"},
      {{.logit_bias = {{-1, 0.F}}}, "token -1"},
      {{.logit_bias = {{1, nan}}}, "logit_bias"},
  };
  for (const auto& [params, name] : bad) {
    const auto result = check(params, 8);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, Code::invalid_argument);
    EXPECT_THAT(result.error().message, HasSubstr(name));
  }
  EXPECT_TRUE(check(SamplingParams{}, 8));
}

}  // namespace
}  // namespace onw
