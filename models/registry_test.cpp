#include "models/registry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"

namespace onw {
namespace {

using Json = nlohmann::json;

Json tiny(const char* architecture) {
  Json c = {{"architectures", {architecture}},
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
  if (std::string_view(architecture).starts_with("Qwen3_5"))
    c.update({{"linear_num_key_heads", 2},
              {"linear_num_value_heads", 6},
              {"linear_key_head_dim", 8},
              {"linear_value_head_dim", 12},
              {"linear_conv_kernel_dim", 4},
              {"full_attention_interval", 2}});
  return c;
}

Json tiny_moe(const char* architecture = "Qwen3MoeForCausalLM") {
  Json config = tiny(architecture);
  config.update({{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 20}});
  if (std::string_view(architecture).starts_with("Qwen3_5"))
    config.update({{"shared_expert_intermediate_size", 28}, {"intermediate_size", nullptr}});
  if (std::string_view(architecture).starts_with("Lfm2"))
    config.update({{"num_dense_layers", 1}, {"layer_types", {"conv", "full_attention"}}});
  return config;
}

Json tiny_gpt_oss() {
  Json config = tiny("GptOssForCausalLM");
  config.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", 6}});
  return config;
}

class EveryFamily : public testing::TestWithParam<const char*> {};

TEST_P(EveryFamily, gives_a_program_that_verifies_and_round_trips_as_text) {
  Json config = tiny(GetParam());
  if (std::string_view(GetParam()).starts_with("Granite")) config["head_dim"] = 12;
  if (std::string_view(GetParam()).ends_with("MoeForCausalLM")) config = tiny_moe(GetParam());
  if (std::string_view(GetParam()) == "GptOssForCausalLM") config = tiny_gpt_oss();
  config["full_attn_idxs"] = {1};
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
                                         "GraniteForCausalLM", "GraniteMoeHybridForCausalLM", "Gemma3ForCausalLM",
                                         "Gemma4ForCausalLM", "Lfm2ForCausalLM", "Qwen3_5ForCausalLM",
                                         "Qwen3MoeForCausalLM", "Qwen3_5MoeForCausalLM", "Lfm2MoeForCausalLM",
                                         "GptOssForCausalLM"));

// npu-076
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

// Every key that some family reads, with values of other types, alone and inside of text_config.
TEST(Registry, a_value_of_another_type_is_named_with_its_key_and_what_is_expected) {
  const std::string other = R"("x")", list = "[1]", one = "1";
  const struct {
    const char *architecture, *key;
    std::vector<std::string> wrong;
    const char* expected;
  } cases[] = {{"LlamaForCausalLM", "num_hidden_layers", {R"("12")", list, "1.5"}, "a whole number"},
               {"LlamaForCausalLM", "num_key_value_heads", {other, list, "1.5", "true"}, "a whole number"},
               {"LlamaForCausalLM", "head_dim", {other, list}, "a whole number"},
               {"LlamaForCausalLM", "max_position_embeddings", {other, list}, "a whole number"},
               {"LlamaForCausalLM", "rope_theta", {list, other}, "a number"},
               {"LlamaForCausalLM", "rms_norm_eps", {R"("1e-5")", list}, "a number"},
               {"LlamaForCausalLM", "tie_word_embeddings", {other, one}, "true or false"},
               {"LlamaForCausalLM", "attention_bias", {other, one}, "true or false"},
               {"LlamaForCausalLM", "mlp_bias", {other, one}, "true or false"},
               {"LlamaForCausalLM", "rope_scaling", {other, list}, "an object"},
               {"LlamaForCausalLM", "rope_parameters", {other, list}, "an object"},
               {"LlamaForCausalLM", "onw_residual_shift", {other}, "a whole number"},
               {"Qwen2ForCausalLM", "use_sliding_window", {other, one}, "true or false"},
               {"GraniteForCausalLM", "embedding_multiplier", {other, list}, "a number"},
               {"GraniteForCausalLM", "logits_scaling", {other, list}, "a number"},
               {"GraniteMoeHybridForCausalLM", "num_local_experts", {other, list}, "a whole number"},
               {"GraniteMoeHybridForCausalLM", "position_embedding_type", {one, list}, "a text"},
               {"GraniteMoeHybridForCausalLM", "layer_types", {other, list}, "a list of texts"},
               {"Gemma3ForCausalLM", "query_pre_attn_scalar", {other, list}, "a number"},
               {"Gemma3ForCausalLM", "final_logit_softcapping", {other, list}, "a number"},
               {"Gemma3ForCausalLM", "sliding_window", {other, list}, "a whole number"},
               {"Gemma3ForCausalLM", "sliding_window_pattern", {other, list}, "a whole number"},
               {"Gemma3ForCausalLM", "rope_local_base_freq", {other, list}, "a number"},
               {"Gemma4ForCausalLM", "num_kv_shared_layers", {other, list}, "a whole number"},
               {"Gemma4ForCausalLM", "global_head_dim", {other, list}, "a whole number"},
               {"Gemma4ForCausalLM", "hidden_size_per_layer_input", {other, list}, "a whole number"},
               {"Gemma4ForCausalLM", "vocab_size_per_layer_input", {other, list}, "a whole number"},
               {"Gemma4ForCausalLM", "use_double_wide_mlp", {other, one}, "true or false"},
               {"Gemma4ForCausalLM", "attention_k_eq_v", {other, one}, "true or false"},
               {"Gemma4ForCausalLM", "enable_moe_block", {other, one}, "true or false"},
               {"Gemma4ForCausalLM", "use_bidirectional_attention", {one, list}, "a text"},
               {"Lfm2ForCausalLM", "conv_L_cache", {other, list}, "a whole number"},
               {"Lfm2ForCausalLM", "conv_bias", {other, one}, "true or false"},
               {"Lfm2ForCausalLM", "norm_eps", {other, list}, "a number"},
               {"Lfm2ForCausalLM", "block_multiple_of", {other, list}, "a whole number"},
               {"Lfm2ForCausalLM", "layer_types", {other, list}, "a list of texts"},
               {"Qwen3_5ForCausalLM", "full_attention_interval", {other, list}, "a whole number"},
               {"Qwen3_5ForCausalLM", "attn_output_gate", {other, one}, "true or false"},
               {"Qwen3_5ForCausalLM", "partial_rotary_factor", {other, list}, "a number"}};
  for (const auto& c : cases)
    for (const std::string& wrong : c.wrong)
      for (const bool nested : {false, true}) {
        Json config = tiny(c.architecture);
        if (std::string_view(c.architecture).starts_with("Granite")) config["head_dim"] = 12;
        config[c.key] = nullptr;
        const bool needed = std::string_view(c.key) == "num_hidden_layers";
        EXPECT_EQ(build_program(config).has_value(), !needed) << c.key << " is absent";
        config[c.key] = Json::parse(wrong);
        if (nested && std::string_view(c.key) != "onw_residual_shift")
          config = {{"architectures", {c.architecture}}, {"text_config", config}};
        const auto program = build_program(config);
        ASSERT_FALSE(program) << c.key << wrong;
        EXPECT_EQ(program.error().code, Code::bad_format);
        const std::string says = fmt::format("config.json: '{}' is {}, expected {}", c.key, wrong, c.expected);
        EXPECT_NE(program.error().message.find(says), std::string::npos) << program.error().message;
      }
}

TEST(Registry, dimensions_beyond_any_model_are_named) {
  for (const char* architecture : {"LlamaForCausalLM", "Gemma3ForCausalLM"})
    for (const char* key : {"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
                            "vocab_size", "num_key_value_heads", "head_dim", "max_position_embeddings"})
      for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{INT32_MAX}, INT64_MAX}) {
        if (std::string_view(key).starts_with("max_") && wrong == INT32_MAX) continue;
        Json config = tiny(architecture);
        config[key] = wrong;
        const auto program = build_program(config);
        ASSERT_FALSE(program) << architecture << " " << key << " " << wrong;
        EXPECT_NE(program.error().message.find(fmt::format("'{}'", key)), std::string::npos) << program.error().message;
      }
}

TEST(Recurrent, sizes_and_kinds_that_cannot_be_are_named) {
  const auto says = [](const char* architecture, const Json& change) {
    Json config = tiny(architecture);
    config.update(change);
    const auto program = build_program(config);
    return program ? std::string("taken") : program.error().message;
  };
  const char* qwen = "Qwen3_5ForCausalLM";
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"})
    for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{INT32_MAX}, INT64_MAX})
      EXPECT_NE(says(qwen, {{key, wrong}}).find(fmt::format("'{}'", key)), std::string::npos) << key << wrong;
  EXPECT_NE(says(qwen, {{"linear_num_value_heads", 5}}).find("no multiple of 'linear_num_key_heads'"),
            std::string::npos);
  EXPECT_NE(says(qwen, {{"layer_types", {"mamba", "full_attention"}}}).find("'mamba'"), std::string::npos);
  EXPECT_NE(says(qwen, {{"layer_types", {"full_attention"}}}).find("1 layer_types for 2 layers"), std::string::npos);
  EXPECT_NE(says(qwen, {{"attention_bias", true}}).find("'attention_bias'"), std::string::npos);
  EXPECT_NE(says(qwen, {{"partial_rotary_factor", 0}}).find("'partial_rotary_factor' is 0"), std::string::npos);
  EXPECT_NE(says("Lfm2ForCausalLM", {{"conv_L_cache", 65}}).find("'conv_L_cache' is 65"), std::string::npos);
}

TEST(Registry, a_wrong_type_inside_of_the_rotary_parameters_is_named_with_its_place) {
  const auto says = [](const char* key, const char* value) {
    Json config = tiny("Gemma3ForCausalLM");
    config[key] = Json::parse(value);
    const auto program = build_program(config);
    return program ? std::string() : program.error().message;
  };
  EXPECT_NE(says("rope_scaling", R"({"rope_type": "linear", "factor": "8"})").find("'rope_scaling.factor' is \"8\""),
            std::string::npos);
  EXPECT_NE(says("rope_scaling", R"({"type": 3})").find("'rope_scaling.rope_type' is 3, expected a text"),
            std::string::npos);
  EXPECT_NE(says("rope_parameters", R"({"full_attention": {"rope_theta": [1]}, "sliding_attention": {}})")
                .find("'rope_parameters.full_attention.rope_theta' is [1]"),
            std::string::npos);
  EXPECT_EQ(says("rope_scaling", R"({"rope_type": null, "type": null, "factor": null})"), "");
}

TEST(Registry, a_list_by_layer_in_a_gguf_file_is_refused_by_its_key) {
  for (const Family& family : all_families()) {
    if (family.config_from_gguf == nullptr) continue;
    const std::string arch(family.gguf_architecture);
    Json m = {{arch + ".embedding_length", 48},         {arch + ".block_count", 2},
              {arch + ".feed_forward_length", 80},      {arch + ".attention.layer_norm_rms_epsilon", 1e-5},
              {arch + ".attention.head_count", {4, 4}}, {arch + ".attention.key_length", 16}};
    for (const char* key : {"expert_count", "expert_used_count", "expert_feed_forward_length"}) m[arch + "." + key] = 4;
    if (arch.starts_with("lfm2")) m[arch + ".attention.head_count_kv"] = {0, 2};  // that one is a list
    for (const char* key : {"ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size",
                            "ssm.conv_kernel", "rope.dimension_count"})
      if (arch.starts_with("qwen35")) m[arch + "." + key] = 4;
    const auto config = family.config_from_gguf(m);
    ASSERT_FALSE(config) << arch;
    EXPECT_NE(config.error().message.find(arch + ".attention.head_count' is [4,4]"), std::string::npos)
        << config.error().message;
    m[arch + ".attention.head_count"] = 4;
    for (const char* flag : {"onw.has_head", "onw.has_attention_bias", "onw.has_mlp_bias"})
      m[flag] = Json::array({1.0});
    EXPECT_TRUE(family.config_from_gguf(m)) << arch;
    m[arch + ".block_count"] = "many";
    EXPECT_FALSE(family.config_from_gguf(m)) << arch;
  }
}

TEST(Experts, that_cannot_be_are_named_with_their_key) {
  for (const char* architecture : {"Qwen3MoeForCausalLM", "Qwen3_5MoeForCausalLM", "Lfm2MoeForCausalLM"}) {
    const auto says = [&](const char* key, const Json& value) {
      Json config = tiny_moe(architecture);
      config[key] = value;
      const auto program = build_program(config);
      return program ? std::string() : program.error().message;
    };
    EXPECT_EQ(says("num_experts", 3), "");
    EXPECT_NE(says("num_experts", 2).find("'num_experts_per_tok' is 3, but 'num_experts' is 2"), std::string::npos);
    EXPECT_NE(says("num_experts", 100000).find("'num_experts' is 100000, expected 1 to 1024"), std::string::npos);
    for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"})
      for (const Json& wrong : {Json(0), Json(-1), Json("8"), Json(1.5)})
        EXPECT_NE(says(key, wrong).find(fmt::format("'{}'", key)), std::string::npos) << key << wrong;
  }
}

TEST(Experts, keys_of_one_family_are_named_where_they_cannot_be) {
  const auto says = [](const char* architecture, const char* key, const Json& value) {
    Json config = tiny_moe(architecture);
    config[key] = value;
    const auto program = build_program(config);
    return program ? std::string() : program.error().message;
  };
  const std::tuple<const char*, const char*, Json, const char*> wrong[] = {
      {"Qwen3MoeForCausalLM", "decoder_sparse_step", 0, "'decoder_sparse_step' is 0"},
      {"Qwen3MoeForCausalLM", "mlp_only_layers", {"a"}, "'mlp_only_layers'"},
      {"Qwen3_5MoeForCausalLM", "shared_expert_intermediate_size", nullptr,
       "'shared_expert_intermediate_size' is missing"},
      {"Qwen3_5MoeForCausalLM", "shared_expert_intermediate_size", 0, "'shared_expert_intermediate_size'"},
      {"Lfm2MoeForCausalLM", "num_dense_layers", 3, "'num_dense_layers' is 3, expected 0 to 2"},
      {"Lfm2MoeForCausalLM", "num_dense_layers", -1, "'num_dense_layers' is -1"},
      {"Lfm2MoeForCausalLM", "routed_scaling_factor", "1", "'routed_scaling_factor'"},
      {"Lfm2MoeForCausalLM", "routed_scaling_factor", 0, "'routed_scaling_factor' is 0"},
      {"Lfm2MoeForCausalLM", "use_expert_bias", 1, "'use_expert_bias'"},
      {"Lfm2MoeForCausalLM", "norm_topk_prob", "yes", "'norm_topk_prob'"}};
  for (const auto& [architecture, key, value, expected] : wrong)
    EXPECT_NE(says(architecture, key, value).find(expected), std::string::npos)
        << key << ": " << says(architecture, key, value);
}

TEST(Experts, of_a_gguf_file_that_cannot_be_are_named_by_its_keys) {
  for (const char* arch : {"qwen3moe", "qwen35moe", "gpt-oss", "lfm2moe"}) {
    const auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
    Json m = {{key("embedding_length"), 48},    {key("block_count"), 2},
              {key("attention.head_count"), 4}, {key("attention.key_length"), 16},
              {key("feed_forward_length"), 80}, {key("expert_count"), 8},
              {key("expert_used_count"), 3},    {key("expert_feed_forward_length"), 20}};
    m[key("attention.layer_norm_rms_epsilon")] = 1e-5;
    if (std::string_view(arch) == "lfm2moe") m[key("attention.head_count_kv")] = {0, 2};
    for (const char* ssm : {"ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size",
                            "ssm.conv_kernel", "rope.dimension_count"})
      m[key(ssm)] = 4;
    const auto family = find_gguf_family(arch);
    ASSERT_TRUE(family) << arch;
    ASSERT_TRUE((*family)->config_from_gguf(m)) << arch << ": " << (*family)->config_from_gguf(m).error().message;
    const auto says = [&](const char* name, const Json& value) {
      Json broken = m;
      broken[key(name)] = value;
      const auto config = (*family)->config_from_gguf(broken);
      return config ? std::string() : config.error().message;
    };
    for (const char* name : {"expert_count", "expert_used_count", "expert_feed_forward_length"})
      for (const Json& wrong : {Json(0), Json(-1), Json("8"), Json({8, 8})})
        EXPECT_NE(says(name, wrong).find(fmt::format("'{}' is {}", key(name), wrong.dump())), std::string::npos)
            << says(name, wrong);
    EXPECT_NE(says("expert_used_count", 9).find(key("expert_used_count") + "' is 9, but"), std::string::npos);
    EXPECT_NE(says("expert_count", 5000).find("is 5000, expected 1 to 1024"), std::string::npos);
    Json without = m;
    without.erase(key("expert_count"));
    EXPECT_NE((*family)->config_from_gguf(without).error().message.find(key("expert_count")), std::string::npos);
  }
}

TEST(Lfm2, the_width_of_the_mlp_follows_the_rule_of_transformers) {
  const auto width = [](const Json& change) {
    Json config = tiny("Lfm2ForCausalLM");
    config.update(change);
    const auto program = build_program(config);
    return program ? program->weight("layers.0.mlp.gate")->shape[0] : -1;
  };
  const auto rule = [](Json keys) {
    keys["block_multiple_of"] = 8;
    return keys;
  };
  EXPECT_EQ(width(rule({{"intermediate_size", 80}})), 56);
  EXPECT_EQ(width(rule({{"intermediate_size", 80}, {"block_ff_dim", 96}})), 64);  // it goes before
  EXPECT_EQ(width({{"intermediate_size", 80}, {"block_ff_dim", 96}, {"block_auto_adjust_ff_dim", false}}), 96);
  EXPECT_EQ(width(rule({{"intermediate_size", nullptr}, {"block_ff_dim", 96}})), 64);
  EXPECT_EQ(width(rule({{"block_ff_dim", 96}, {"block_ffn_dim_multiplier", 1.5}})), 96);
  EXPECT_EQ(width(rule({{"block_ff_dim", 0}})), -1);
}

TEST(Qwen3_5, turns_by_ten_thousand_where_no_key_says_otherwise) {  // as transformers does
  Json config = tiny("Qwen3_5ForCausalLM");
  const auto slowest = [&config] { return build_program(config)->rope_tables[0].inv_freq.back(); };
  const double by_default = slowest();
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  EXPECT_EQ(slowest(), by_default);
  config["rope_parameters"]["rope_theta"] = 1e7;
  EXPECT_LT(slowest(), by_default);
}

TEST(Qwen3Moe, dense_layers_stand_where_the_config_says) {
  Json config = tiny_moe();
  config.update({{"num_hidden_layers", 4}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
  const auto program = build_program(config);
  ASSERT_TRUE(program) << program.error().message;
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(program->weight(fmt::format("layers.{}.router", layer)) != nullptr, layer == 1) << layer;
    EXPECT_EQ(program->weight(fmt::format("layers.{}.mlp.gate", layer)) != nullptr, layer != 1) << layer;
  }
}

TEST(GptOss, wrong_keys_are_named_and_every_other_layer_slides) {
  const auto program = build_program(tiny_gpt_oss());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->states[0].window, 6);
  EXPECT_EQ(program->states[1].window, 0);
  for (const auto& [key, value] :
       {std::pair{"swiglu_limit", Json(0)}, std::pair{"sliding_window", Json(0)},
        std::pair{"num_experts_per_tok", Json(5)}, std::pair{"num_local_experts", Json("4")}}) {
    Json config = tiny_gpt_oss();
    config[key] = value;
    const auto broken = build_program(config);
    ASSERT_FALSE(broken) << key;
    EXPECT_NE(broken.error().message.find(fmt::format("'{}'", key)), std::string::npos) << broken.error().message;
  }
  Json config = tiny_gpt_oss();
  config["layer_types"] = {"full_attention"};
  EXPECT_NE(build_program(config).error().message.find("1 layer_types for 2 layers"), std::string::npos);
  config["layer_types"] = {"full_attention", "sliding_atention"};
  EXPECT_NE(build_program(config).error().message.find("'sliding_atention'"), std::string::npos);
}

Json tiny_gemma4() {
  Json config = tiny("Gemma4ForCausalLM");
  config.update({{"num_hidden_layers", 6},
                 {"layer_types",
                  {"sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
                   "full_attention"}},
                 {"num_kv_shared_layers", 2},
                 {"use_double_wide_mlp", true},
                 {"global_head_dim", 32},
                 {"hidden_size_per_layer_input", 6},
                 {"vocab_size_per_layer_input", 101}});
  return config;
}

TEST(Gemma4, last_layers_read_the_cache_of_the_last_of_their_kind_that_keeps_one) {
  const auto program = build_program(tiny_gemma4());
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->states.size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(program->states[static_cast<size_t>(i)].layer, i);
    EXPECT_EQ(program->states[static_cast<size_t>(i)].head_dim, i % 2 == 0 ? 16 : 32);
    EXPECT_EQ(program->states[static_cast<size_t>(i)].window, i % 2 == 0 ? 512 : 0);
  }
  std::vector<std::string> read;
  for (const Node& n : program->function("body")->nodes)
    if (n.op == Op::attention) read.emplace_back(n.attributes.text("state"));
  EXPECT_EQ(read, (std::vector<std::string>{"kv.0", "kv.1", "kv.2", "kv.3", "kv.2", "kv.3"}));
  EXPECT_EQ(program->weight("layers.4.attn.k"), nullptr);
  EXPECT_EQ(program->weight("layers.3.mlp.up")->shape, (Shape{80, 48}));
  EXPECT_EQ(program->weight("layers.4.mlp.up")->shape, (Shape{160, 48}));
  ASSERT_EQ(program->lookups.size(), 1U);
  EXPECT_EQ(program->weight(program->lookups[0].weight)->shape, (Shape{101, 36}));
}

TEST(Gemma4, both_dialects_give_the_same_program) {
  Json config = tiny_gemma4(), newer = config;
  newer.erase("global_head_dim");
  for (const char* layer : {"1", "3", "5"}) newer["per_layer_config"][layer] = {{"head_dim", 32}};
  EXPECT_EQ(print(*build_program(newer)), print(*build_program(config)));
  Json nested = {{"architectures", {"Gemma4ForConditionalGeneration"}}, {"model_type", "gemma4"}};
  nested["text_config"] = config;
  nested["text_config"]["model_type"] = "gemma4_text";
  EXPECT_EQ(print(*build_program(nested)), print(*build_program(config)));
}

TEST(Gemma4, what_cannot_be_is_named) {
  const std::tuple<const char*, Json, const char*> wrong[] = {
      {"num_kv_shared_layers", 6, "'num_kv_shared_layers' is 6 of 6 layers, expected 0 to 5"},
      {"num_kv_shared_layers", -1, "'num_kv_shared_layers' is -1"},
      {"num_kv_shared_layers", 5, "leaves no layer of 'full_attention'"},
      {"layer_types", {"full_attention"}, "1 layer_types for 6 layers"},
      {"sliding_window", 0, "'sliding_window' is 0"},
      {"global_head_dim", 0, "'head_dim' of layer 1 is 0"},
      {"global_head_dim", 2000, "'head_dim' of layer 1 is 2000"},
      {"vocab_size_per_layer_input", 100, "'vocab_size_per_layer_input' is 100, expected at least the 101"},
      {"hidden_size_per_layer_input", -1, "'hidden_size_per_layer_input' is -1"},
      {"per_layer_config", 3, "'per_layer_config' is no object"},
      {"per_layer_config", {{"5", {{"head_dim", 64}}}}, "layer 3, whose it reads"},
      {"per_layer_config", {{"3", {{"head_dim", "32"}}}}, "'head_dim' of layer 3"},
      {"enable_moe_block", true, "26B-A4B"},
      {"use_bidirectional_attention", "all", "bidirectional"},
      {"hidden_activation", "silu", "'silu'"}};
  for (const auto& [key, value, says] : wrong) {
    Json config = tiny_gemma4();
    config[key] = value;
    const auto program = build_program(config);
    ASSERT_FALSE(program) << key << value;
    EXPECT_NE(program.error().message.find(says), std::string::npos) << program.error().message;
  }
  Json config = tiny_gemma4();
  config["layer_types"][2] = "linear_attention";
  EXPECT_NE(build_program(config).error().message.find("'linear_attention'"), std::string::npos);
}

TEST(Granite, mamba_layers_are_refused_by_name_and_impossible_experts_by_key) {
  Json config = tiny("GraniteMoeHybridForCausalLM");
  config["layer_types"] = {"attention", "mamba"};
  EXPECT_NE(build_program(config).error().message.find("'mamba'"), std::string::npos);
  config["layer_types"] = {"attention"};
  EXPECT_NE(build_program(config).error().message.find("1 layer_types for 2 layers"), std::string::npos);
  config["layer_types"] = {"attention", "attention"};
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 9;
  EXPECT_NE(build_program(config).error().message.find("'num_experts_per_tok' is 9"), std::string::npos);
  config["num_experts_per_tok"] = 2;
  EXPECT_TRUE(build_program(config));
  config["num_local_experts"] = -1;
  EXPECT_NE(build_program(config).error().message.find("'num_local_experts' is -1"), std::string::npos);
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
