#include "convert/equalise_inputs.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

TEST(InputExponents, are_the_root_of_the_size_beside_the_median_one) {
  const std::vector<float> squares = {1, 1, 1, 256, 1.0F / 65536, 1.9F};  // sizes 1, 16, 1 / 256, 1.4
  EXPECT_EQ(input_exponents(squares), (std::vector<int8_t>{0, 0, 0, 2, -4, 0}));
}

TEST(InputExponents, are_none_where_channels_are_alike_or_silent) {
  EXPECT_TRUE(input_exponents(std::vector<float>{1, 1.5F, 0.8F}).empty());
  EXPECT_TRUE(input_exponents(std::vector<float>{0, 0, 0, 7}).empty());
  EXPECT_TRUE(input_exponents({}).empty());
}

TEST(InputExponents, stay_within_bounds) {
  EXPECT_EQ(input_exponents(std::vector<float>{1, 1, 1, 1e38F, 0, 1e-38F}), (std::vector<int8_t>{0, 0, 0, 8, -8, -8}));
}

}  // namespace
}  // namespace onw
