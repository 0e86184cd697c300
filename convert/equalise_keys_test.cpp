#include "convert/equalise_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace onw {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EqualiseKeys, like_sizes_stay_as_they_are) {
  EXPECT_THAT(key_exponents({{1, 1.3, 0.8, 1.1}, {{1, 0.7, 1, 1.2}}}), IsEmpty());
  EXPECT_THAT(key_exponents({{0, 0, 0, 0}, {{0, 0, 0, 0}}}), IsEmpty());
}

TEST(EqualiseKeys, a_few_huge_keys_come_down_and_the_others_stay) {
  EXPECT_THAT(key_exponents({{1, 1, 64, 1, 1, 1, 1, 1}, {{1, 1, 1.0 / 64, 1, 1, 1, 1, 1}}}),
              ElementsAre(0, 0, -6, 0, 0, 0, 0, 0));
}

// Both are large in the same pair: what keys gained, queries would lose.
TEST(EqualiseKeys, a_pair_that_is_large_on_both_sides_is_left_alone) {
  EXPECT_THAT(key_exponents({{1, 1, 64, 1}, {{1, 1, 64, 1}}}), IsEmpty());
}

TEST(EqualiseKeys, between_the_two_it_goes_half_of_the_way) {
  const auto e = key_exponents({{1, 1, 256, 1, 1, 1, 1, 1}, {{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}});
  EXPECT_THAT(e, ElementsAre(0, 0, -4, 0, 0, 0, 0, 0));
}

TEST(EqualiseKeys, no_exponent_is_beyond_the_limit_and_zeros_stay) {
  EXPECT_THAT(key_exponents({{1, 1, 1e9, 1, 0}, {{1, 1, 1e-9, 1, 1}}}), ElementsAre(0, 0, -8, 0, 0));
}

// What the rule is for: the error of q.k with one INT8 scale each, measured.
TEST(EqualiseKeys, makes_products_of_rounded_rows_more_accurate) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  constexpr size_t kPairs = 32;
  PairSizes sizes{std::vector<double>(kPairs, 1), {std::vector<double>(kPairs, 1)}};
  sizes.keys[3] = sizes.keys[17] = 100;
  const auto exponents = key_exponents(sizes);
  ASSERT_THAT(exponents, SizeIs(kPairs));
  const auto error = [&](bool equalised) {
    double sum = 0;
    for (int row = 0; row < 200; ++row) {
      std::vector<double> q(2 * kPairs), k(2 * kPairs);
      double exact = 0, rounded = 0, q_max = 0, k_max = 0;
      for (size_t i = 0; i < q.size(); ++i) {
        const double s = equalised ? std::ldexp(1.0, exponents[i % kPairs]) : 1;
        q[i] = normal(random) * sizes.queries[0][i % kPairs] / s;
        k[i] = normal(random) * sizes.keys[i % kPairs] * s;
        exact += q[i] * k[i];
        q_max = std::max(q_max, std::fabs(q[i]));
        k_max = std::max(k_max, std::fabs(k[i]));
      }
      for (size_t i = 0; i < q.size(); ++i)
        rounded += std::nearbyint(q[i] * 127 / q_max) * q_max / 127 * std::nearbyint(k[i] * 127 / k_max) * k_max / 127;
      sum += (exact - rounded) * (exact - rounded);
    }
    return std::sqrt(sum / 200);
  };
  EXPECT_LT(error(true), 0.6 * error(false));
}

}  // namespace
}  // namespace onw
