#include "targets/relaid_weights.h"

#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "quant/unpack.h"
#include "store/test_weights.h"

namespace onw {
namespace {

Program program_of(const std::vector<WeightUnit>& units) {
  Program p;
  for (const StoredWeight& w : all_weights(units))
    p.weights.push_back(
        {.name = w.name, .shape = w.shape, .role = w.shape.size() == 1 ? WeightRole::vector : WeightRole::matrix});
  return p;
}

TEST(RelaidWeights, mean_the_same_lie_side_by_side_and_are_made_once) {
  TempFolder folder;
  const auto units = small_units(Layout::rows);
  ASSERT_TRUE(make_folder(folder / "m", units));
  const auto model = std::make_shared<const ModelFolder>(*ModelFolder::open(folder / "m"));
  const CacheStore cache(folder / "cache");
  const Program program = program_of(units);
  int calls = 0;
  const auto observer = [&](int64_t done, int64_t total) { return ++calls > 0 && done <= total; };
  const auto set = weights_in_layout(model, program, Layout::tiles, cache, observer);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_GT(calls, 0);
  for (const StoredWeight& w : all_weights(units)) {
    const auto ours = set->find(w.name), theirs = model->weight(w.name);
    ASSERT_TRUE(ours) << w.name;
    EXPECT_EQ(ours->layout, w.shape.size() == 1 ? Layout::rows : Layout::tiles) << w.name;
    std::vector<float> a(ours->inputs), b(ours->inputs);
    for (int64_t r = 0; r < ours->outputs; ++r) {
      dequantise_row(*ours, r, a);
      dequantise_row(*theirs, r, b);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << w.name << " row " << r;
    }
  }
  EXPECT_EQ(set->find("l.k")->codes.data(), set->find("l.q")->codes.data() + set->find("l.q")->codes.size());
  calls = 0;
  ASSERT_TRUE(weights_in_layout(model, program, Layout::tiles, cache, observer));
  EXPECT_EQ(calls, 0);
}

TEST(RelaidWeights, nothing_is_written_where_the_folder_has_the_layout) {
  TempFolder folder;
  const auto units = small_units(Layout::tiles);
  ASSERT_TRUE(make_folder(folder / "m", units));
  const auto model = std::make_shared<const ModelFolder>(*ModelFolder::open(folder / "m"));
  ASSERT_TRUE(weights_in_layout(model, program_of(units), Layout::tiles, CacheStore(folder / "cache")));
  EXPECT_FALSE(std::filesystem::exists(folder / "cache"));
}

TEST(RelaidWeights, stopping_leaves_no_entry) {
  TempFolder folder;
  const auto units = small_units(Layout::rows);
  ASSERT_TRUE(make_folder(folder / "m", units));
  const auto model = std::make_shared<const ModelFolder>(*ModelFolder::open(folder / "m"));
  const CacheStore cache(folder / "cache");
  const auto stopped =
      weights_in_layout(model, program_of(units), Layout::tiles, cache, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  EXPECT_TRUE(cache.entries()->empty());
}

}  // namespace
}  // namespace onw
