#include "models/residual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "graph/verifier.h"
#include "models/registry.h"

namespace onw {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

Json small_config(const char* architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 64},
          {"num_hidden_layers", 1},
          {"intermediate_size", 96},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 40},
          {"head_dim", 16},
          {"rms_norm_eps", 1e-5},
          {"mlp_bias", true},
          {"attention_bias", true},
          {"residual_multiplier", 0.5}};
}

Program program_of(const Json& config) {
  auto program = build_program(config);
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

double eps_of(const Program& p, std::string_view label) {
  for (const Node& n : p.function("body")->nodes)
    if (n.label == label) return n.attributes.number("eps");
  return -1;
}

TEST(Residual, is_written_by_the_last_products_of_both_halves_and_their_biases) {
  for (const char* architecture : {"LlamaForCausalLM", "GraniteForCausalLM"})
    EXPECT_THAT(
        *residual_writers(program_of(small_config(architecture))),
        UnorderedElementsAre("layers.0.attn.o", "layers.0.attn.o.bias", "layers.0.mlp.down", "layers.0.mlp.down.bias"));
}

TEST(Residual, is_written_by_the_norms_where_a_block_ends_in_them) {
  EXPECT_THAT(*residual_writers(program_of(small_config("Gemma3ForCausalLM"))),
              UnorderedElementsAre("layers.0.post_attn_norm", "layers.0.post_mlp_norm"));
}

TEST(Residual, a_shift_in_the_config_divides_the_embedding_and_the_eps_of_norms_that_read_the_stream) {
  Json config = small_config("Gemma3ForCausalLM");
  const Program plain = program_of(config);
  config[kResidualShiftKey] = 3;
  const Program shifted = program_of(config);
  EXPECT_EQ(shifted.embedding_scale, plain.embedding_scale / 8);
  for (const char* reads : {"L00/attn_norm", "L00/mlp_norm", "norm"})
    EXPECT_EQ(eps_of(shifted, reads), eps_of(plain, reads) / 64) << reads;
  for (const char* does_not : {"L00/q_norm", "L00/k_norm", "L00/post_attn_norm", "L00/post_mlp_norm"})
    EXPECT_EQ(eps_of(shifted, does_not), eps_of(plain, does_not)) << does_not;
}

TEST(Residual, is_written_by_three_norms_where_layers_embed_tokens_and_multiplied_back_where_a_product_reads_it_bare) {
  Json config = small_config("Gemma4ForCausalLM");
  config.update({{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 40}, {"attention_bias", false}});
  const Program plain = program_of(config);
  EXPECT_THAT(*residual_writers(plain),
              UnorderedElementsAre("layers.0.post_attn_norm", "layers.0.post_mlp_norm", "layers.0.layer_norm"));
  config[kResidualShiftKey] = 3;
  const Program shifted = program_of(config);
  std::vector<std::string> back;
  for (const Node& n : shifted.function("body")->nodes)
    if (n.op == Op::scale && n.attributes.number("by") == 8) back.push_back(n.label);
  EXPECT_THAT(back, UnorderedElementsAre("layer_inputs_proj_whole", "L00/layer_gate_whole"));
  EXPECT_TRUE(verify(shifted));
  EXPECT_EQ(eps_of(shifted, "layer_inputs_norm"), eps_of(plain, "layer_inputs_norm"));
}

TEST(Residual, a_shift_beyond_reason_is_refused) {
  for (const int shift : {-1, 13}) {
    Json config = small_config("LlamaForCausalLM");
    config[kResidualShiftKey] = shift;
    const auto program = build_program(config);
    ASSERT_FALSE(program);
    EXPECT_THAT(program.error().message, HasSubstr("onw_residual_shift"));
  }
}

}  // namespace
}  // namespace onw
