#include "runtime/philox.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

// The known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, gives_the_published_answers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, draws_are_below_one_and_differ_by_seed_choice_and_position) {
  EXPECT_NE(uniform_draw(1, 0, 0), uniform_draw(2, 0, 0));
  EXPECT_NE(uniform_draw(1, 0, 0), uniform_draw(1, 1, 0));
  EXPECT_NE(uniform_draw(1, 0, 0), uniform_draw(1, 0, 1));
  EXPECT_NE(uniform_draw(1, 0, 0), uniform_draw(uint64_t{1} << 32 | 1, 0, 0));
  EXPECT_NE(uniform_draw(1, 0, 0), uniform_draw(1, 0, uint64_t{1} << 32));
  double mean = 0;
  constexpr int kDraws = 20000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = uniform_draw(9, 0, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    mean += u / kDraws;
  }
  EXPECT_NEAR(mean, 0.5, 0.01);
}

}  // namespace
}  // namespace onw
