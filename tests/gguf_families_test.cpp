// Every family's GGUF form: a file as llama.cpp names and orders it gives the logits of the Hugging Face folder of the
// same weights. The goldens judge the folder (families_test.cpp), so they judge the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "tests/golden.h"
#include "tests/run_ids.h"
#include "tests/tiny_gguf.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

// Numbers of a GGUF file's metadata are FP32, those of config.json decimal: 0.11 differs by 1e-8 of itself.
constexpr double kTolerance = 1e-5;
// Value heads in another order are sums in another order: what transformers' own ways differ by, too.
constexpr double kToleranceTiled = 1e-4;

Golden load_golden(const std::string& name) {
  auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens" / (name + ".safetensors"));
  EXPECT_TRUE(golden) << golden.error().message;
  if (!golden) return {};
  if (golden->family == "gemma3") {  // what such a file cannot say is as published
    auto config = nlohmann::json::parse(golden->config);
    config.update({{"sliding_window_pattern", 6},
                   {"rope_local_base_freq", 10000.0},
                   {"query_pre_attn_scalar", config["head_dim"]}});
    golden->config = config.dump();
  }
  if (golden->family == "gpt_oss") {
    auto config = nlohmann::json::parse(golden->config);
    config["swiglu_limit"] = 7.0;
    golden->config = config.dump();
  }
  return std::move(*golden);
}

std::vector<float> logits_of(const std::filesystem::path& source, const std::filesystem::path& out,
                             const Golden& golden) {
  const auto done = convert(source, out, {.format = WeightFormat::f32});
  EXPECT_TRUE(done) << done.error().message;
  if (!done) return {};
  EXPECT_THAT(done->unused, ::testing::IsEmpty());
  const auto target = load_executable(out, {.device = "reference", .threads = 2, .quantised = false});
  EXPECT_TRUE(target) << target.error().message;
  if (!target) return {};
  return logits_in_segments(**target, golden.ids, std::vector<int64_t>{1000}).value();
}

class GgufFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufFamilies, give_the_logits_of_the_folder_with_the_same_weights) {
  const Golden golden = load_golden(GetParam());
  const TempFolder folder;
  ASSERT_TRUE(write_tiny_model(golden, folder / "published"));
  const auto written = write_tiny_gguf(golden, folder / "m.gguf");
  ASSERT_TRUE(written) << written.error().message;
  const auto expected = logits_of(folder / "published", folder / "hf", golden);
  EXPECT_LE(relative_error(logits_of(folder / "m.gguf", folder / "gguf", golden), expected),
            golden.family.starts_with("qwen3_5") ? kToleranceTiled : kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Goldens, GgufFamilies,
                         ::testing::Values("llama-odd", "llama-g64", "llama-plain-g128", "qwen2-odd", "qwen2-g64",
                                           "qwen3-odd", "qwen3-g64", "qwen3_moe-g64", "gpt_oss-odd", "gpt_oss-g64",
                                           "granite-odd", "granite-g128", "gemma3-odd", "gemma4-odd", "gemma4-g64",
                                           "gemma4-large-odd", "gemma4-large-g128", "lfm2-odd", "lfm2_moe-odd",
                                           "qwen3_5-odd", "qwen3_5_moe-odd", "qwen3_5_moe-g64"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(GgufFamilies, would_be_far_off_if_rows_were_not_in_pairs) {
  for (const char* name : {"llama-odd", "granite-odd"}) {
    const Golden golden = load_golden(name);
    const TempFolder folder;
    ASSERT_TRUE(write_tiny_gguf(golden, folder / "paired.gguf"));
    ASSERT_TRUE(write_tiny_gguf(golden, folder / "not.gguf", {.pair_rows = false}));
    const auto expected = logits_of(folder / "paired.gguf", folder / "a", golden);
    EXPECT_GT(relative_error(logits_of(folder / "not.gguf", folder / "b", golden), expected), 0.01) << name;
  }
}

TEST(GgufFamilies, with_gates_over_ups_in_one_stack_are_those_with_two) {
  const Golden golden = load_golden("qwen3_5_moe-odd");
  const TempFolder folder;
  ASSERT_TRUE(write_tiny_gguf(golden, folder / "two.gguf"));
  ASSERT_TRUE(write_tiny_gguf(golden, folder / "one.gguf", {.fused_experts = true}));
  EXPECT_EQ(logits_of(folder / "one.gguf", folder / "a", golden), logits_of(folder / "two.gguf", folder / "b", golden));
}

TEST(GgufFamilies, would_be_far_off_if_value_heads_were_not_tiled) {
  const Golden golden = load_golden("qwen3_5-odd");
  const TempFolder folder;
  ASSERT_TRUE(write_tiny_gguf(golden, folder / "tiled.gguf"));
  ASSERT_TRUE(write_tiny_gguf(golden, folder / "not.gguf", {.tile_heads = false}));
  const auto expected = logits_of(folder / "tiled.gguf", folder / "a", golden);
  EXPECT_GT(relative_error(logits_of(folder / "not.gguf", folder / "b", golden), expected), 0.01);
}

}  // namespace
}  // namespace onw::testing
