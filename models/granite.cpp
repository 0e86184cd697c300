// IBM Granite 3.x and 4.x: Llama with four multipliers, in two tensor layouts, GraniteForCausalLM and
// GraniteMoeHybridForCausalLM without Mamba layers (transformers models/granite, models/granitemoehybrid). The latter
// may have experts beside its MLP, which every token takes. head_dim is always hidden / heads.
#include <nlohmann/json.hpp>

#include "models/experts.h"
#include "models/families.h"

namespace onw {
namespace {

void read_multipliers(const Config& config, DecoderConfig& c) {
  c.embedding_scale = config.number("embedding_multiplier", 1);
  c.attention_scale = config.number("attention_multiplier", 1);  // instead of 1/sqrt(head_dim)
  c.residual_scale = config.number("residual_multiplier", 1);
  c.logits_scale = 1 / config.number("logits_scaling", 1);
}

Result<Program> build(const Config& config, DecoderConfig c, BlockFunction block) {
  read_multipliers(config, c);
  c.qkv_bias = c.output_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  c.gguf_qk_fold = Fold::rope_unpair;
  if (c.attention_scale == 0 || !(config.number("logits_scaling", 1) > 0))
    return error(Code::bad_format, "config.json: attention_multiplier and logits_scaling must not be zero");
  return decoder_program(c, block);
}

// Stacks, gate first; transformers 5 has other names for them than it writes.
ExpertNames expert_names(const Experts& experts) {
  const std::string moe = "block_sparse_moe.", old = moe + "input_linear.weight", fused = moe + "experts.gate_up_proj";
  return {.router = {moe + "router.layer.weight", moe + "router.weight"},
          .hugging_face = {.gate = {{old, fused}},
                           .up = {{old, fused}, Fold::none, experts.intermediate},
                           .down = {{moe + "output_linear.weight", moe + "experts.down_proj"}}}};
}

// Gate and up are the halves of one tensor.
Value hybrid_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  x = block.residual("attn_add", x,
                     block.attention(block.norm("attn_norm", x, "attn_norm", "input_layernorm", "attn_norm")));
  const Value m = block.norm("mlp_norm", x, "mlp_norm", "post_attention_layernorm", "ffn_norm");
  Value y = block.mlp(m, "shared_mlp.input_linear", "shared_mlp.output_linear");
  if (c.experts.count > 0)
    y = b.add("shared_add", routed_experts(b, c.experts, expert_names(c.experts), layer, m, c.activation), y);
  return block.residual("mlp_add", x, y);
}

}  // namespace

Result<Program> build_granite(const Config& config) {
  auto c = read_decoder_config("granite", config, /*own_head_dim=*/false);
  RETURN_IF_ERROR(c);
  auto rope = config.rope("rope", "", c->head_dim, 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return build(config, std::move(*c), pre_norm_block);
}

Result<Program> build_granite_hybrid(const Config& config) {
  const auto kinds = config.strings("layer_types");
  for (const std::string& kind : kinds)
    if (kind != "attention" && kind != "full_attention")
      return error(Code::unsupported,
                   "GraniteMoeHybridForCausalLM with '{}' layers is not supported; attention-only models of it are",
                   kind);
  Json named = config.json();
  if (config.has("shared_intermediate_size")) named["intermediate_size"] = named["shared_intermediate_size"];
  const Config dense = config.with(std::move(named));
  auto c = read_decoder_config("granitemoehybrid", dense, /*own_head_dim=*/false);
  RETURN_IF_ERROR(c);
  if (!kinds.empty() && static_cast<int64_t>(kinds.size()) != c->layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), c->layers);
  if (config.integer("num_local_experts", 0) != 0) {
    auto experts = read_experts(config, "num_local_experts", "num_experts_per_tok", "intermediate_size");
    RETURN_IF_ERROR(experts);
    c->experts = std::move(*experts);
    c->experts.kind = "softmax_chosen";
  }
  if (dense.text("position_embedding_type", "") == "rope") {
    auto rope = dense.rope("rope", "", c->head_dim, 10000);
    RETURN_IF_ERROR(rope);
    c->ropes = {std::move(*rope)};
  } else {  // NoPE: positions enter nowhere
    c->layer_ropes.assign(static_cast<size_t>(c->layers), "");
  }
  return build(dense, std::move(*c), hybrid_block);
}

Result<Json> granite_config_from_gguf(const Json& m) {
  auto c = decoder_config_from_gguf(m, "granite", "granite", "GraniteForCausalLM");
  RETURN_IF_ERROR(c);
  for (const auto& [from, to] :
       {std::pair{"granite.embedding_scale", "embedding_multiplier"},
        std::pair{"granite.attention.scale", "attention_multiplier"},
        std::pair{"granite.residual_scale", "residual_multiplier"}, std::pair{"granite.logit_scale", "logits_scaling"}})
    if (m.contains(from)) (*c)[to] = m[from];
  return c;
}

}  // namespace onw
