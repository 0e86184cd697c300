#include "kernels/rope_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace onw {
namespace {

TEST(RopeRow, rounds_the_angle_as_the_publishers_do) {
  const std::vector<float> inv_freq = {1.0f, 0.1f, 1e-5f};
  std::vector<float> cos(3), sin(3);
  rope_row(131071, inv_freq, 1.5f, cos.data(), sin.data());
  for (int i = 0; i < 3; i++) {
    const double angle = 131071.0f * inv_freq[i];
    EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle)) * 1.5f);
    EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle)) * 1.5f);
  }
}

}  // namespace
}  // namespace onw
