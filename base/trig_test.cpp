#include "base/trig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace onw {
namespace {

double sin_cos_error(double angle) {
  const SinCos ours = sin_cos(angle);
  const long double exact = angle;
  return static_cast<double>(std::max(std::fabs(ours.sin - std::sin(exact)), std::fabs(ours.cos - std::cos(exact))));
}

TEST(SinCos, is_within_1e15_up_to_two_to_the_24_radians) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (const double range : {0.5, 4.0, 1000.0, 0x1p17, 0x1p24}) {
    std::uniform_real_distribution<double> angles(-range, range);
    for (int i = 0; i < 50000; i++) worst = std::max(worst, sin_cos_error(angles(random)));
  }
  EXPECT_LT(worst, 1e-15);
}

TEST(SinCos, is_within_1e15_beside_multiples_of_a_quarter_turn) {
  double worst = 0;
  for (int n = 0; n < 10000000; n += 997) {
    const double near = n * 1.5707963267948966;
    for (const double angle : {near, std::nextafter(near, 0.0), std::nextafter(near, 1e9)})
      worst = std::max(worst, sin_cos_error(angle));
  }
  EXPECT_LT(worst, 1e-15);
}

TEST(SinCos, is_exact_at_zero_and_nan_where_there_is_no_answer) {
  EXPECT_EQ(sin_cos(0).sin, 0);
  EXPECT_EQ(sin_cos(0).cos, 1);
  for (const double angle : {std::numeric_limits<double>::infinity(), std::nan(""), 1e300}) {
    EXPECT_TRUE(std::isnan(sin_cos(angle).sin));
    EXPECT_TRUE(std::isnan(sin_cos(angle).cos));
  }
}

TEST(Power, gives_rope_frequencies_to_a_few_units_in_the_last_place) {
  for (const double theta : {1e4, 5e5, 1e6, 1e7})
    for (int i = 0; i < 64; i++) {
      const double exponent = -2.0 * i / 128;
      const long double exact = std::pow(static_cast<long double>(theta), static_cast<long double>(exponent));
      const double bound = 1e-15 * (1 + std::fabs(exponent * std::log(theta)));
      EXPECT_NEAR(static_cast<double>(power(theta, exponent) / exact), 1.0, bound) << theta << "^" << exponent;
    }
}

TEST(Power, covers_the_range_of_double) {
  EXPECT_EQ(power(2, 10), 1024);
  EXPECT_EQ(power(10, -400), 0);
  EXPECT_EQ(power(10, 400), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(power(0.3, 2.5), std::pow(0.3, 2.5), 1e-16);
}

}  // namespace
}  // namespace onw
