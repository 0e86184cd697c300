#include "tests/tiny_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/half.h"
#include "base/temp_folder.h"
#include "store/safetensors.h"

namespace onw::testing {
namespace {

using ::testing::ElementsAre;

std::filesystem::path goldens() { return std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens"; }

// The numbers are what tools/goldens/draw.py gives.
TEST(TinyModel, draws_what_the_script_draws) {
  EXPECT_THAT(draw_tensor(7, {"a.weight", {2, 3}, -10, 0}),
              ElementsAre(-136 / 1024.f, 179 / 1024.f, 214 / 1024.f, -317 / 1024.f, -79 / 1024.f, 26 / 1024.f));
  const auto norm = draw_tensor(20261, {"model.norm.weight", {48}, -9, 1});
  EXPECT_EQ(norm[0], 0x1.058p+0f);
  EXPECT_EQ(norm[3], 0x1.4ap-1f);
  int64_t weighted = 0, i = 0;
  for (const float x : draw_tensor(7, {"long", {100000}, 0, 0})) weighted += ++i * static_cast<int64_t>(x);
  EXPECT_EQ(weighted, -3534095326);
}

TEST(TinyModel, parameters_survive_f16) {
  auto golden = read_golden(goldens() / "gemma3-odd.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  for (const TinyTensor& tensor : golden->tensors)
    for (const float x : draw_tensor(golden->seed, tensor))
      ASSERT_EQ(half_to_float(float_to_half(x)), x) << tensor.name;
}

TEST(TinyModel, writes_a_folder_whose_tensors_are_those_of_the_list) {
  auto golden = read_golden(goldens() / "llama-odd.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const TempFolder folder;
  ASSERT_TRUE(write_tiny_model(*golden, folder.path()));
  auto file = SafetensorsFile::open(folder / "model.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), golden->tensors.size());
  for (const TinyTensor& tensor : golden->tensors) {
    const SafeTensor* written = file->find(tensor.name);
    ASSERT_NE(written, nullptr) << tensor.name;
    EXPECT_EQ(written->shape, tensor.shape);
    const auto values = draw_tensor(golden->seed, tensor);
    EXPECT_THAT(file->bytes(*written), ::testing::ElementsAreArray(std::as_bytes(std::span(values)))) << tensor.name;
  }
}

TEST(Golden, there_are_three_widths_of_every_family) {
  std::map<std::string, std::set<std::string>> widths;
  for (const auto& path : golden_paths(goldens())) {
    auto golden = read_golden(path);
    ASSERT_TRUE(golden) << golden.error().message;
    EXPECT_EQ(golden->name, golden->family + "-" + golden->width);
    widths[golden->family].insert(golden->width);
  }
  EXPECT_GE(widths.size(), 8u);
  for (const auto& [family, names] : widths) EXPECT_THAT(names, ElementsAre("g128", "g64", "odd")) << family;
}

TEST(Golden, relative_error_is_measured_against_the_largest_logit_and_refuses_what_is_not_finite) {
  const std::vector<float> theirs = {1, -10, 2};
  EXPECT_DOUBLE_EQ(relative_error(std::vector<float>{1, -10, 3}, theirs), 0.1);
  EXPECT_TRUE(std::isinf(relative_error(std::vector<float>{1, -10}, theirs)));
  EXPECT_TRUE(std::isinf(relative_error(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN(), 2}, theirs)));
}

}  // namespace
}  // namespace onw::testing
