#include "targets/openvino/constants.h"

#include <gtest/gtest.h>

#include <array>

#include "base/temp_folder.h"
#include "store/test_weights.h"
#include "targets/relaid_weights.h"

namespace onw::openvino {
namespace {

// A model folder whose matrices lie in tiles, in rows: two files behind one set.
TEST(OpenVinoConstants, name_weights_where_they_lie_in_the_files_and_copy_nothing) {
  const TempFolder folder;
  const auto units = small_units(Layout::tiles);
  ASSERT_TRUE(make_folder(folder / "m", units));
  const auto model = std::make_shared<const ModelFolder>(*ModelFolder::open(folder / "m"));
  Program program;
  for (const StoredWeight& w : all_weights(units))
    program.weights.push_back(
        {.name = w.name, .shape = w.shape, .role = w.shape.size() == 1 ? WeightRole::vector : WeightRole::matrix});
  const auto weights = weights_in_layout(model, program, Layout::rows, CacheStore(folder / "cache"));
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->files.size(), 2U);
  auto constants = Constants::create(*weights);
  ASSERT_TRUE(constants) << constants.error().message;
  for (const StoredWeight& w : all_weights(units)) {
    const WeightView view = *weights->find(w.name);
    for (const auto part : {view.codes, view.scales, view.minima}) {
      if (part.empty()) continue;
      const auto at = constants->place(part);
      ASSERT_TRUE(at);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), constants->data() + *at)) << w.name;
    }
  }
  EXPECT_TRUE(constants->memory().empty());
  auto copies = Constants::create(*weights, true);
  ASSERT_TRUE(copies);
  const WeightView view = *weights->find(all_weights(units)[0].name);
  EXPECT_EQ(*copies->place(view.codes), 0);
  EXPECT_EQ(*copies->place(view.codes), 0);
  EXPECT_EQ(copies->memory().size(), view.codes.size());
}

TEST(OpenVinoConstants, share_small_ones_that_are_equal) {
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const std::array<int64_t, 2> a = {1, 2}, b = {1, 2}, c = {2, 1};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const int64_t first = *constants->add(bytes(a));
  EXPECT_EQ(*constants->add(bytes(b)), first);
  EXPECT_NE(*constants->add(bytes(c)), first);
}

TEST(OpenVinoConstants, grow_as_they_are_needed) {
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const std::vector<std::byte> large(3 << 20, std::byte{5});
  ASSERT_TRUE(constants->place(large));
  const std::vector<std::byte> second(large.size(), std::byte{6});
  const auto at = constants->place(second);
  ASSERT_TRUE(at);
  EXPECT_EQ(constants->data()[*at + static_cast<int64_t>(second.size()) - 1], std::byte{6});
}

}  // namespace
}  // namespace onw::openvino
