#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace onw {
namespace {

TEST(Half, every_value_survives_the_way_to_float_and_back) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float x = half_to_float(static_cast<uint16_t>(h));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(x))));
    } else {
      EXPECT_EQ(float_to_half(x), h);
    }
  }
}

TEST(Half, rounds_to_nearest_even) {
  EXPECT_EQ(float_to_half(2049.0f), float_to_half(2048.0f));  // halfway, even below
  EXPECT_EQ(float_to_half(2051.0f), float_to_half(2052.0f));  // halfway, even above
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(0x1.8p-24f), 2);
  EXPECT_EQ(float_to_half(0x1.fffp-15f), 0x400);
}

TEST(Bf16, rounds_to_nearest_even) {
  EXPECT_EQ(float_to_bf16(1.00390625f), float_to_bf16(1.0f));
  EXPECT_EQ(bf16_to_float(float_to_bf16(3.140625f)), 3.140625f);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
}

}  // namespace
}  // namespace onw
