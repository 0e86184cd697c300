// Every family against its publisher's implementation: the reference target, unquantised, on the stored goldens; once
// from the parameters as they are drawn, and from the model folder that convert makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "kernels/isa.h"
#include "models/registry.h"
#include "store/model_folder.h"
#include "targets/reference/reference.h"
#include "tests/golden.h"
#include "tests/run_ids.h"
#include "tests/tiny_model.h"
#include "tests/tiny_weights.h"

namespace onw::testing {
namespace {

// Relative to the largest logit. Both sides compute in FP32: what is seen is 1e-6 to 1e-5.
constexpr double kTolerance = 1e-4;

std::filesystem::path goldens() { return std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens"; }

std::string test_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  std::ranges::replace(name, '-', '_');
  return name;
}

Golden load(const std::filesystem::path& path) {
  auto golden = read_golden(path);
  EXPECT_TRUE(golden) << golden.error().message;
  return golden ? std::move(*golden) : Golden();
}

Result<std::unique_ptr<Executable>> reference_for(const Golden& golden, const nlohmann::json& config) {
  auto program = build_program(config);
  RETURN_IF_ERROR(program);
  auto weights = tiny_weights(golden, *program);
  RETURN_IF_ERROR(weights);
  return make_reference(std::move(*program), std::move(*weights), {.threads = 2});
}

// The folder's weights lie in tiles, so that the kernels of this CPU may do the products: the same bits, in less time.
Result<std::unique_ptr<Executable>> reference_for_folder(const std::filesystem::path& path) {
  auto folder = ModelFolder::open(path);
  RETURN_IF_ERROR(folder);
  auto program = build_program(folder->config());
  RETURN_IF_ERROR(program);
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  const auto owner = std::make_shared<const ModelFolder>(std::move(*folder));
  const WeightSet weights{.find = [owner](std::string_view name) { return owner->weight(name); }, .owner = owner};
  return make_reference(std::move(*program), weights, {.isa = *isa, .threads = 2});
}

// How far the target is from the golden when the ids are fed in `segments`.
double distance(Executable& target, const Golden& golden, const std::vector<int64_t>& segments) {
  const auto logits = logits_in_segments(target, golden.ids, segments);
  EXPECT_TRUE(logits) << logits.error().message;
  const double error = logits ? relative_error(*logits, golden.logits) : -1;
  ::testing::Test::RecordProperty("relative_error", fmt::format("{:.2e}", error));
  return error;
}

int64_t tokens(const Golden& golden) { return static_cast<int64_t>(golden.ids.size()); }

// One prefill under this config: the golden's, or another.
double distance_under(const Golden& golden, const nlohmann::json& config) {
  const auto target = reference_for(golden, config);
  EXPECT_TRUE(target) << target.error().message;
  return target ? distance(**target, golden, {tokens(golden)}) : -1;
}

class Families : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Families, give_the_logits_of_transformers_for_one_prefill) {
  const Golden golden = load(GetParam());
  EXPECT_LE(distance_under(golden, nlohmann::json::parse(golden.config)), kTolerance);
}

class ConvertedFamilies : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    ASSERT_TRUE(write_tiny_model(golden_, folder_ / "published"));
    const auto done = convert(folder_ / "published", folder_ / "model", {.format = WeightFormat::f32});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_THAT(done->unused, ::testing::IsEmpty());
    auto target = reference_for_folder(folder_ / "model");
    ASSERT_TRUE(target) << target.error().message;
    target_ = std::move(*target);
  }

  TempFolder folder_;
  Golden golden_;
  std::unique_ptr<Executable> target_;
};

TEST_P(ConvertedFamilies, give_the_logits_of_transformers_for_a_prefill_and_single_tokens) {
  std::vector<int64_t> segments(golden_.ids.size(), 1);
  segments[0] = tokens(golden_) / 2;
  EXPECT_LE(distance(*target_, golden_, segments), kTolerance);
}

TEST_P(ConvertedFamilies, give_the_logits_of_transformers_for_uneven_segments) {
  EXPECT_LE(distance(*target_, golden_, golden_.segments), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Families, ::testing::ValuesIn(golden_paths(goldens())), test_name);
INSTANTIATE_TEST_SUITE_P(Goldens, ConvertedFamilies, ::testing::ValuesIn(golden_paths(goldens())), test_name);

// A key that was not read, or a golden that does not depend on it, would pass everything above.
TEST(Families, are_far_from_the_golden_when_one_key_of_the_config_is_wrong) {
  const std::tuple<const char*, const char*, nlohmann::json> wrong[] = {
      {"llama-odd", "/rope_scaling", nullptr},
      {"llama-odd", "/rope_scaling/low_freq_factor", 2},
      {"llama-odd", "/rope_theta", 9000},
      {"llama-odd", "/rms_norm_eps", 0.1},
      {"llama-plain-g128", "/rope_parameters/factor", 3},
      {"qwen2-sliding-odd", "/sliding_window", 6},
      {"qwen2-sliding-odd", "/max_window_layers", 0},
      {"qwen3-g64", "/rope_parameters/factor", 5},
      {"qwen3-g64", "/rope_parameters/original_max_position_embeddings", 64},
      {"qwen3_moe-odd", "/norm_topk_prob", true},
      {"qwen3_moe-odd", "/num_experts_per_tok", 2},
      {"qwen3_moe-g64", "/norm_topk_prob", false},
      {"gpt_oss-odd", "/sliding_window", 5},
      {"gpt_oss-odd", "/swiglu_limit", 2},
      {"gpt_oss-odd", "/rope_scaling/truncate", true},
      {"gpt_oss-g64", "/num_experts_per_tok", 2},
      {"granite-odd", "/embedding_multiplier", 6},
      {"granite-odd", "/attention_multiplier", 0.1},
      {"granite-odd", "/residual_multiplier", 0.4},
      {"granite-odd", "/logits_scaling", 2},
      {"granitemoehybrid-odd", "/position_embedding_type", nullptr},
      {"gemma3-odd", "/sliding_window", 6},
      {"gemma3-odd", "/sliding_window_pattern", 2},
      {"gemma3-odd", "/query_pre_attn_scalar", 16},
      {"gemma3-odd", "/rope_theta", 900},
      {"gemma3-odd", "/rope_local_base_freq", 60},
      {"gemma3-g128", "/rope_parameters/full_attention/factor", 4},
      {"gemma3-g128", "/final_logit_softcapping", 4},
      {"gemma4-odd", "/sliding_window", 6},
      {"gemma4-odd", "/rms_norm_eps", 0.1},
      {"gemma4-odd", "/final_logit_softcapping", 4},
      {"gemma4-odd", "/rope_parameters/full_attention/partial_rotary_factor", 0.5},
      {"gemma4-odd", "/rope_parameters/full_attention/rope_type", "default"},
      {"gemma4-odd", "/rope_parameters/sliding_attention/rope_theta", 90},
      {"gemma4-large-odd", "/rope_parameters", nullptr},
      {"lfm2-odd", "/rope_theta", 900},
      {"lfm2-odd", "/norm_eps", 0.1},
      {"lfm2_moe-odd", "/num_experts_per_tok", 3},
      {"lfm2_moe-odd", "/routed_scaling_factor", 1},
      {"lfm2_moe-odd", "/norm_topk_prob", false},
      {"lfm2_moe-g64", "/norm_topk_prob", true},
      {"lfm2_moe-g64", "/use_expert_bias", false},
      {"qwen3_5-odd", "/rope_parameters/rope_theta", 9000},
      {"qwen3_5-odd", "/rms_norm_eps", 0.1},
      {"qwen3_5-odd", "/onw_tiled_value_heads", true},
      {"qwen3_5_moe-odd", "/num_experts_per_tok", 2},
  };
  for (const auto& [name, key, value] : wrong) {
    const Golden golden = load(goldens() / (std::string(name) + ".safetensors"));
    auto config = nlohmann::json::parse(golden.config);
    config[nlohmann::json::json_pointer(key)] = value;
    EXPECT_GT(distance_under(golden, config), 10 * kTolerance) << name << " " << key;
  }
}

}  // namespace
}  // namespace onw::testing
