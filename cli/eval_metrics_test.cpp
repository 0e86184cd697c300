#include "cli/eval_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace onw::cli {
namespace {

TEST(EvalMetrics, an_even_guess_has_the_perplexity_of_its_choices) {
  EvalMetrics m;
  const std::vector<float> even(50, 3.0F);
  for (int i = 0; i < 7; ++i) m.add_prediction(even, i);
  EXPECT_NEAR(m.summary().perplexity, 50, 1e-9);
  EXPECT_EQ(m.summary().predictions, 7);
  EXPECT_EQ(m.summary().comparisons, 0);
}

TEST(EvalMetrics, large_logits_do_not_overflow) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1e5F, 1e5F}), 1e5 + std::log(2.0), 1e-6);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{-1e5F, -1e5F}), -1e5 + std::log(2.0), 1e-6);
}

TEST(EvalMetrics, equal_distributions_have_no_distance_whatever_constant_is_added) {
  EvalMetrics m;
  m.add_comparison(std::vector<float>{1, 2, 3}, std::vector<float>{11, 12, 13});
  EXPECT_NEAR(m.summary().mean_kl, 0, 1e-12);
  EXPECT_EQ(m.summary().top1_agreement, 1);
}

TEST(EvalMetrics, the_distance_is_taken_from_the_reference) {
  EvalMetrics m;
  const float a = std::log(0.9F), b = std::log(0.1F);
  m.add_comparison(std::vector<float>{b, a}, std::vector<float>{a, b});
  EXPECT_NEAR(m.summary().mean_kl, 0.9 * std::log(9.0) - 0.1 * std::log(9.0), 1e-6);
  EXPECT_EQ(m.summary().top1_agreement, 0);
}

TEST(EvalMetrics, of_a_thousand_rows_one_may_be_beyond_the_percentile) {
  EvalMetrics m;
  const std::vector<float> near{0, 0}, far{0, 20};
  for (int i = 0; i < 999; ++i) m.add_comparison(near, near);
  m.add_comparison(near, far);
  EXPECT_NEAR(m.summary().kl_999, 0, 1e-12);
  EXPECT_GT(m.summary().max_kl, 0.5);
  m.add_comparison(near, far);
  EXPECT_GT(m.summary().kl_999, 0.5);
}

TEST(EvalMetrics, ties_go_to_the_lowest_id) { EXPECT_EQ(top_token(std::vector<float>{1, 5, 5}), 1); }

}  // namespace
}  // namespace onw::cli
