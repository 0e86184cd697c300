#include "store/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "base/temp_folder.h"
#include "store/test_weights.h"

namespace onw {
namespace {

using testing::HasSubstr;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WeightPlan, data_begins_at_4096_and_tensors_at_64_without_holes) {
  for (const Layout layout : {Layout::rows, Layout::tiles}) {
    const auto units = small_units(layout);
    const WeightFilePlan plan = plan_weight_file(units);
    EXPECT_EQ(plan.header.size() % 4096, 0u);
    auto at = static_cast<int64_t>(plan.header.size());
    std::set<std::string> names;
    for (const PlannedTensor& t : plan.tensors) {
      EXPECT_EQ(t.begin, at);
      at = t.end;
      EXPECT_TRUE(names.insert(t.name).second) << t.name;
      if (!t.name.starts_with("pad.")) EXPECT_EQ(t.begin % 64, 0) << t.name;
    }
    EXPECT_EQ(at, plan.file_bytes);
    EXPECT_EQ(plan.tensors.back().name, "complete");
  }
}

TEST(WeightPlan, weights_of_a_unit_lie_side_by_side) {
  const auto units = small_units();
  const WeightFilePlan plan = plan_weight_file(units);
  std::vector<std::string> order;
  for (const PlannedTensor& t : plan.tensors)
    if (t.unit == 1) order.push_back(t.name);
  EXPECT_EQ(order, (std::vector<std::string>{"l.q.codes", "l.k.codes", "l.v.codes", "l.q.scales", "l.k.scales",
                                             "l.v.scales", "l.q.minima", "l.k.minima", "l.v.minima"}));
}

TEST(WeightFile, gives_back_what_was_written) {
  for (const Layout layout : {Layout::rows, Layout::tiles}) {
    TempFolder folder;
    const auto units = small_units(layout);
    auto writer = WeightFileWriter::open(folder / "w", {}, units, "");
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(write_units(*writer, units, units.size()));
    const auto digest = writer->finish();
    ASSERT_TRUE(digest);
    const auto file = WeightFile::open(folder / "w", all_weights(units));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->digest(), *digest);
    const auto k = file->weight("l.k");
    ASSERT_TRUE(k);
    EXPECT_EQ(k->outputs, 16);
    EXPECT_EQ(k->inputs, 64);
    EXPECT_EQ(k->layout, layout);
    const auto expected = filled(k->codes.size(), 11);
    EXPECT_EQ(std::memcmp(k->codes.data(), expected.data(), expected.size()), 0);
    EXPECT_EQ(k->minima.size(), 16u * 2 * 2);
    EXPECT_EQ(file->weight("l.norm")->inputs, 1);
    EXPECT_EQ(file->weight("absent").error().code, Code::missing_tensor);
  }
}

TEST(WeightFile, weights_of_a_unit_read_as_one) {
  TempFolder folder;
  const auto units = small_units(Layout::tiles);
  auto writer = WeightFileWriter::open(folder / "w", {}, units, "");
  ASSERT_TRUE(write_units(*writer, units, units.size()));
  ASSERT_TRUE(writer->finish());
  const auto file = WeightFile::open(folder / "w", all_weights(units));
  const std::string qkv[] = {"l.q", "l.k", "l.v"};
  const auto merged = file->merged(qkv);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->outputs, 80);
  const WeightBytes bytes = weight_bytes(merged->format, merged->layout, 80, 64);
  EXPECT_EQ(static_cast<int64_t>(merged->codes.size()), bytes.codes);
  EXPECT_EQ(static_cast<int64_t>(merged->minima.size()), bytes.minima);
  EXPECT_EQ(merged->scales.data() + 48 * 2 * 2, file->weight("l.k")->scales.data());
  const std::string other_order[] = {"l.k", "l.q"}, other_format[] = {"l.v", "l.up"};
  EXPECT_FALSE(file->adjacent(other_order));
  EXPECT_FALSE(file->adjacent(other_format));
}

TEST(WeightFile, refuses_a_list_that_the_file_does_not_hold) {
  TempFolder folder;
  const auto units = small_units();
  auto writer = WeightFileWriter::open(folder / "w", {}, units, "");
  ASSERT_TRUE(write_units(*writer, units, units.size()));
  ASSERT_TRUE(writer->finish());
  auto wrong = all_weights(units);
  wrong[0].shape[0] = 38;
  EXPECT_THAT(WeightFile::open(folder / "w", wrong).error().message,
              HasSubstr("'embed.codes' is I8 [37, 64], engine.json says I8 [38, 64]"));
  wrong[0] = {"lost", WeightFormat::f32, Layout::rows, {3}};
  EXPECT_THAT(WeightFile::open(folder / "w", wrong).error().message, HasSubstr("no tensor 'lost'"));
}

// CASES: formats-133
TEST(WeightFile, a_changed_or_missing_end_is_seen_at_once) {
  TempFolder folder;
  const auto units = small_units();
  auto writer = WeightFileWriter::open(folder / "w", {}, units, "");
  ASSERT_TRUE(write_units(*writer, units, units.size()));
  ASSERT_TRUE(writer->finish());
  const std::string whole = contents(folder / "w");
  folder.write("cut", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(WeightFile::open(folder / "cut", {}).error().code, Code::truncated_file);
  folder.write("zeros", whole.substr(0, whole.size() - 64) + std::string(64, '\0'));
  EXPECT_THAT(WeightFile::open(folder / "zeros", {}).error().message, HasSubstr("footer"));
}

// A run is dropped after some units (as a kill would): the next one must not write them again, and the file must come
// out the same to the byte.
TEST(WeightFileWriter, goes_on_where_an_interrupted_run_stopped) {
  TempFolder folder;
  std::vector<WeightUnit> units;  // over 64 MB, so that the journal is written in between
  for (int i = 0; i < 6; ++i)
    units.push_back({{{"w" + std::to_string(i), WeightFormat::q8c, Layout::rows, {4096, 4096 + 32 * i}}}});
  auto plain = WeightFileWriter::open(folder / "plain", {}, units, "x");
  ASSERT_TRUE(write_units(*plain, units, units.size(), 1 << 20));
  const auto digest = plain->finish();
  ASSERT_TRUE(digest);
  {
    auto cut = WeightFileWriter::open(folder / "w", folder / "journal", units, "x");
    ASSERT_TRUE(cut);
    ASSERT_TRUE(write_units(*cut, units, 5, 1 << 20));
  }
  {
    auto other = WeightFileWriter::open(folder / "w2", folder / "journal", units, "another model");
    ASSERT_TRUE(other);
    EXPECT_EQ(other->next_unit(), 0u);  // and the journal is now of w2
  }
  {
    auto cut = WeightFileWriter::open(folder / "w", folder / "journal", units, "x");
    ASSERT_TRUE(cut);
    EXPECT_EQ(cut->next_unit(), 0u);
    ASSERT_TRUE(write_units(*cut, units, 5, 1 << 20));
  }
  std::ofstream(folder / "journal", std::ios::app) << "{\"end\": 99";  // the last line was not written whole
  auto again = WeightFileWriter::open(folder / "w", folder / "journal", units, "x");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_GE(again->next_unit(), 3u);
  EXPECT_LT(again->next_unit(), 6u);
  EXPECT_EQ(again->kept_notes().front(), "unit 0");
  ASSERT_TRUE(write_units(*again, units, units.size(), 1 << 20));
  const auto resumed = again->finish();
  ASSERT_TRUE(resumed);
  EXPECT_EQ(*resumed, *digest);
  EXPECT_EQ(WeightFile::open(folder / "w", all_weights(units))->digest(), *digest);
}

}  // namespace
}  // namespace onw
