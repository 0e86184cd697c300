#include "models/registry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/text.h"
#include "graph/verifier.h"

namespace onw {
namespace {

using Json = nlohmann::json;

Json tiny(const char* architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 48},
          {"intermediate_size", 80},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 101},
          {"head_dim", 16},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false},
          {"max_position_embeddings", 256}};
}

class EveryFamily : public testing::TestWithParam<const char*> {};

TEST_P(EveryFamily, gives_a_program_that_verifies_and_round_trips_as_text) {
  Json config = tiny(GetParam());
  if (std::string_view(GetParam()).starts_with("Granite")) config["head_dim"] = 12;
  const auto program = build_program(config);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(verify(*program));
  const std::string text = print(*program);
  const auto again = parse_program(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(print(*again), text);
  EXPECT_TRUE(verify(*again));
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamily,
                         testing::Values("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
                                         "GraniteForCausalLM", "GraniteMoeHybridForCausalLM", "Gemma3ForCausalLM"));

TEST(Registry, an_unknown_architecture_lists_what_is_known_and_the_nearest_name) {
  const auto family = find_family(Json{{"architectures", {"LlamaForCausualLM"}}});
  ASSERT_FALSE(family);
  EXPECT_EQ(family.error().code, Code::unsupported);
  EXPECT_NE(family.error().message.find("nearest name is LlamaForCausalLM"), std::string::npos)
      << family.error().message;
  EXPECT_NE(family.error().message.find("gemma3"), std::string::npos);
}

TEST(Registry, a_config_of_any_kind_of_json_is_an_error_not_a_crash) {
  for (const char* text : {"{}", "[]", "3", "null", R"({"architectures":3})", R"({"architectures":[]})",
                           R"({"architectures":[null],"model_type":7})", R"({"text_config":{}})"})
    EXPECT_FALSE(build_program(Json::parse(text))) << text;
  Json config = tiny("LlamaForCausalLM");
  for (const auto& [key, value] : config.items()) {
    for (const Json& odd : {Json(-1), Json(0), Json("x"), Json(), Json(1e300), Json::array()}) {
      Json broken = config;
      broken[key] = odd;
      const auto program = build_program(broken);  // an error or a verified program, nothing else
      if (program) {
        EXPECT_TRUE(verify(*program)) << key << odd;
      }
    }
  }
}

TEST(Granite, mamba_layers_and_experts_are_refused_by_name) {
  Json config = tiny("GraniteMoeHybridForCausalLM");
  config["layer_types"] = {"attention", "mamba"};
  EXPECT_NE(build_program(config).error().message.find("'mamba'"), std::string::npos);
  config["layer_types"] = {"attention", "attention"};
  config["num_local_experts"] = 8;
  EXPECT_NE(build_program(config).error().message.find("8 experts"), std::string::npos);
}

TEST(Rope, yarn_does_not_multiply_the_context_twice) {  // CASES: context-048
  // Published pairs of (scaling, max_position_embeddings): what the config says is the context, whatever the factor.
  const std::pair<const char*, int64_t> configs[] = {
      {R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":32768})", 131072},
      {R"({"rope_type":"yarn","factor":32,"beta_fast":32,"beta_slow":1,"truncate":false,"original_max_position_embeddings":4096})",
       131072},
      {R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192})",
       131072},
      {R"({"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192})",
       131072},
      {R"({"type":"linear","factor":8})", 131072},
      {R"({"type":"yarn","factor":4,"original_max_position_embeddings":32768})", 32768},
      {R"({"rope_type":"default"})", 8192},
      {R"({"rope_type":"default"})", 40960},
      {R"({"type":"linear","factor":2})", 4096},
      {"null", 2048}};
  for (const auto& [scaling, positions] : configs) {
    Json config = tiny("LlamaForCausalLM");
    config["rope_scaling"] = Json::parse(scaling);
    config["max_position_embeddings"] = positions;
    const auto program = build_program(config);
    ASSERT_TRUE(program) << program.error().message;
    EXPECT_EQ(program->max_context, positions) << scaling;
  }
}

TEST(Rope, llama3_divides_long_wavelengths_and_keeps_short_ones) {
  Json config = tiny("LlamaForCausalLM");
  config["rope_theta"] = 10000;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 32}};
  const auto program = build_program(config);
  ASSERT_TRUE(program);
  const auto& f = program->rope_tables[0].inv_freq;
  EXPECT_DOUBLE_EQ(f[0], 1.0);                                // 6.3 positions: short
  EXPECT_NEAR(f[7], std::pow(10000, -14.0 / 16) / 8, 1e-12);  // 19,869 positions: long
}

TEST(Rope, an_unknown_type_is_named) {
  Json config = tiny("LlamaForCausalLM");
  config["rope_scaling"] = {{"rope_type", "spiral"}};
  EXPECT_NE(build_program(config).error().message.find("'spiral'"), std::string::npos);
}

TEST(Gemma3, both_dialects_give_the_same_program) {
  Json old_dialect = tiny("Gemma3ForCausalLM");
  old_dialect.update({{"num_hidden_layers", 6},
                      {"sliding_window", 5},
                      {"sliding_window_pattern", 3},
                      {"rope_theta", 1000},
                      {"rope_local_base_freq", 50}});
  Json new_dialect = old_dialect;
  for (const char* key : {"sliding_window_pattern", "rope_theta", "rope_local_base_freq"}) new_dialect.erase(key);
  const std::string s = "sliding_attention", f = "full_attention";
  new_dialect["layer_types"] = {s, s, f, s, s, f};
  new_dialect["rope_parameters"] = {{f, {{"rope_type", "default"}, {"rope_theta", 1000}}},
                                    {s, {{"rope_type", "default"}, {"rope_theta", 50}}}};
  const auto a = build_program(old_dialect), b = build_program(new_dialect);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(print(*a), print(*b));
  EXPECT_EQ(a->states[0].window, 5);
  EXPECT_EQ(a->states[2].window, 0);
}

}  // namespace
}  // namespace onw
