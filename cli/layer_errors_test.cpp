#include "cli/layer_errors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace onw::cli {
namespace {

// Two layers of two rows, three wide; the rows of a result lie `stride` apart.
LayerTap tap(std::vector<float> first, std::vector<float> second, int64_t stride = 3) {
  LayerTap all(3);
  const auto show = [&](std::string_view label, std::vector<float>& values, int64_t width) {
    all.seen({.label = label, .kind = "add", .values = values.data(), .rows = 2, .width = width, .stride = stride});
  };
  std::vector<float> early(2 * stride, 100.0f), narrow(2 * stride, 7.0f);
  show("L00/attention", early, 3);
  show("L00/residual", first, 3);
  show("L00/kv", narrow, 2);
  show("L01/residual", second, 3);
  show("final_norm", early, 3);
  return all;
}

TEST(LayerErrors, compares_what_each_layer_hands_on_and_puts_the_worst_first) {
  LayerErrors errors;
  const auto ours = tap({1, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 2});
  ASSERT_TRUE(errors.add(ours, tap({1, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 1})).has_value());
  const auto worst = errors.worst(5);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].layer, "L01");
  EXPECT_DOUBLE_EQ(worst[0].relative_rms, std::sqrt(0.5));
  EXPECT_EQ(worst[1].relative_rms, 0);
  EXPECT_EQ(errors.worst(1).size(), 1u);
}

TEST(LayerErrors, sums_over_steps_before_it_divides) {
  LayerErrors errors;
  ASSERT_TRUE(errors.add(tap({1, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}), tap({2, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0})));
  ASSERT_TRUE(errors.add(tap({2, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}), tap({2, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0})));
  EXPECT_DOUBLE_EQ(errors.worst(1)[0].relative_rms, std::sqrt(1.0 / 8));
}

TEST(LayerErrors, reads_rows_by_their_stride) {
  LayerErrors errors;
  ASSERT_TRUE(errors.add(tap({1, 2, 3, 9, 4, 5, 6, 9}, {1, 1, 1, 9, 1, 1, 1, 9}, 4),
                         tap({1, 2, 3, 4, 5, 6}, {1, 1, 1, 1, 1, 1})));
  EXPECT_EQ(errors.worst(1)[0].relative_rms, 0);
}

TEST(LayerErrors, says_so_where_the_layers_are_not_the_same) {
  LayerErrors errors;
  const auto found = errors.add(tap({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}), LayerTap(3));
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "the targets show 2 and 0 layers");
}

}  // namespace
}  // namespace onw::cli
