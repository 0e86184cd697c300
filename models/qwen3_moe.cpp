// Qwen3 with experts (30B-A3B, Coder; transformers models/qwen3_moe): Qwen3's attention, and in the layers that
// decoder_sparse_step and mlp_only_layers leave, experts in place of the MLP. transformers 5 writes either one stack a
// layer or one tensor an expert; both are read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/experts.h"
#include "models/families.h"
#include "models/qwen3.h"

namespace onw {
namespace {

Value qwen3_moe_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  x = block.residual("attn_add", x,
                     block.attention(block.norm("attn_norm", x, "attn_norm", "input_layernorm", "attn_norm")));
  const Value h = block.norm("mlp_norm", x, "mlp_norm", "post_attention_layernorm", "ffn_norm");
  const Value y = c.has_experts(layer)
                      ? routed_experts(b, c.experts, qwen_expert_names(c.experts), layer, h, c.activation)
                      : block.mlp(h);
  return block.residual("mlp_add", x, y);
}

// Every decoder_sparse_step-th layer has experts, but those of mlp_only_layers.
Result<void> read_sparse_layers(const Config& config, DecoderConfig& c) {
  const int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) return error(Code::bad_format, "config.json: 'decoder_sparse_step' is {}, expected 1 or more", step);
  const auto dense = config.integers("mlp_only_layers");
  for (int64_t layer = 0; layer < c.layers; ++layer)
    c.expert_layers.push_back((layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end());
  return {};
}

}  // namespace

Result<Experts> read_qwen_experts(const Config& config) {
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";  // as transformers 5 writes it
  return read_experts(config, count, "num_experts_per_tok", "moe_intermediate_size");
}

ExpertNames qwen_expert_names(const Experts& experts) {
  ExpertNames names = stacked_or_single(experts, "mlp.experts.", {"gate_proj", "up_proj", "down_proj"});
  names.router = {"mlp.gate.weight"};
  return names;
}

Result<Program> build_qwen3_moe(const Config& config) {
  auto c = read_qwen3_config("qwen3_moe", config);
  RETURN_IF_ERROR(c);
  auto experts = read_qwen_experts(config);
  RETURN_IF_ERROR(experts);
  c->experts = std::move(*experts);
  c->experts.renormalise = config.boolean("norm_topk_prob", false);
  RETURN_IF_ERROR(read_sparse_layers(config, *c));
  return decoder_program(*c, qwen3_moe_block);
}

// Such files do not say whether weights are renormalised (every published model's are), nor which layers are dense
// (none is).
Result<Json> qwen3_moe_config_from_gguf(const Json& m) {
  auto c = decoder_config_from_gguf(with_mlp_width(m, "qwen3moe"), "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM");
  RETURN_IF_ERROR(c);
  RETURN_IF_ERROR(experts_from_gguf(m, "qwen3moe", "num_experts", "moe_intermediate_size", *c));
  (*c)["norm_topk_prob"] = true;
  return c;
}

}  // namespace onw
