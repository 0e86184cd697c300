#include "kernels/route/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace onw {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

struct Chosen {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  bool finite = false;
};

Chosen take(const RouteForm& form, const std::vector<float>& logits, size_t k) {
  Chosen c{std::vector<int32_t>(k), std::vector<float>(k)};
  c.finite = route(form, logits, c.ids, c.weights);
  return c;
}

std::vector<float> random_logits(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// The same in double, written down once more.
std::vector<double> weights_in_double(const RouteForm& form, const std::vector<float>& logits,
                                      const std::vector<int32_t>& ids) {
  std::vector<double> w;
  double sum = 0;
  const auto is_chosen = [&](size_t e) { return std::ranges::find(ids, static_cast<int32_t>(e)) != ids.end(); };
  for (size_t e = 0; e < logits.size(); ++e)
    if (form.kind == RouteKind::softmax || is_chosen(e)) sum += std::exp(static_cast<double>(logits[e]));
  for (const int32_t id : ids) {
    const double x = logits[static_cast<size_t>(id)];
    w.push_back(form.kind == RouteKind::sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x) / sum);
  }
  const double chosen = std::accumulate(w.begin(), w.end(), 0.0) + form.eps;
  for (double& x : w) x = (form.renormalise ? x / chosen : x) * form.scale;
  return w;
}

TEST(Route, takes_the_largest_and_of_equal_ones_the_lower_id) {
  EXPECT_THAT(take({}, {1, 5, 2, 4}, 2).ids, ElementsAre(1, 3));
  EXPECT_THAT(take({}, {4, 4, 4, 4}, 2).ids, ElementsAre(0, 1));
  EXPECT_THAT(take({}, {1, 4, 2, 4, 4, 9}, 3).ids, ElementsAre(1, 3, 5));
  EXPECT_THAT(take({}, {0.0f, -0.0f, -1}, 1).ids, ElementsAre(0));
  EXPECT_THAT(take({}, {3, 1, 2}, 3).ids, ElementsAre(0, 1, 2));
}

TEST(Route, sorts_like_a_whole_sort_for_every_k) {
  const std::vector<float> logits = random_logits(64, 1);
  for (size_t k = 1; k <= 64; ++k) {
    std::vector<int32_t> ids(64);
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::sort(ids, {}, [&](int32_t e) { return std::pair(-logits[static_cast<size_t>(e)], e); });
    ids.resize(k);
    std::ranges::sort(ids);
    EXPECT_EQ(take({}, logits, k).ids, ids) << k;
  }
}

TEST(Route, weights_are_those_of_the_formula_in_double) {
  for (const RouteKind kind : {RouteKind::softmax, RouteKind::softmax_chosen, RouteKind::sigmoid})
    for (const bool renormalise : {false, true})
      for (uint32_t seed = 0; seed < 8; ++seed) {
        const RouteForm form{.kind = kind, .renormalise = renormalise, .eps = 1e-6f, .scale = 1.7f};
        const auto logits = random_logits(32, seed);
        const Chosen c = take(form, logits, 4);
        ASSERT_TRUE(c.finite);
        EXPECT_THAT(c.weights, Pointwise(FloatNear(1e-6f), weights_in_double(form, logits, c.ids)));
      }
}

// numerics-063
TEST(Route, weights_lie_between_0_and_1_and_add_up_to_1_at_most) {
  for (const RouteKind kind : {RouteKind::softmax, RouteKind::softmax_chosen, RouteKind::sigmoid})
    for (const bool renormalise : {false, true})
      for (uint32_t seed = 0; seed < 50; ++seed) {
        const Chosen c = take({.kind = kind, .renormalise = renormalise}, random_logits(32, seed), 6);
        EXPECT_TRUE(std::ranges::all_of(c.weights, [](float w) { return w >= 0 && w <= 1; }));
        const double sum = std::accumulate(c.weights.begin(), c.weights.end(), 0.0);
        if (renormalise || kind == RouteKind::softmax_chosen)
          EXPECT_NEAR(sum, 1, 1e-6);
        else if (kind == RouteKind::softmax)
          EXPECT_LE(sum, 1 + 1e-6);
      }
}

TEST(Route, a_bias_chooses_but_does_not_weigh) {
  const std::vector<float> bias = {0, 0, 0.9f, 0};
  const Chosen c = take({.kind = RouteKind::sigmoid, .bias = bias.data()}, {1, 0.5f, -1, 0}, 2);
  EXPECT_THAT(c.ids, ElementsAre(0, 2));
  EXPECT_NEAR(c.weights[1], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Route, large_finite_logits_stay_finite) {
  for (const RouteKind kind : {RouteKind::softmax, RouteKind::softmax_chosen, RouteKind::sigmoid}) {
    const Chosen c = take({.kind = kind, .renormalise = true}, {3e38f, -3e38f, 3e38f, 1}, 2);
    EXPECT_THAT(c.ids, ElementsAre(0, 2));
    EXPECT_THAT(c.weights, ElementsAre(0.5f, 0.5f));
  }
}

TEST(Route, logits_that_are_no_numbers_give_weights_that_are_none) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const Chosen c = take({}, {1, bad, 2, 3}, 2);
    EXPECT_FALSE(c.finite);
    EXPECT_THAT(c.ids, ElementsAre(0, 1));
    EXPECT_TRUE(std::ranges::all_of(c.weights, [](float w) { return std::isnan(w); }));
  }
  const std::vector<float> bias = {0, std::numeric_limits<float>::infinity()};
  EXPECT_FALSE(take({.kind = RouteKind::sigmoid, .bias = bias.data()}, {1, 2}, 1).finite);
}

}  // namespace
}  // namespace onw
