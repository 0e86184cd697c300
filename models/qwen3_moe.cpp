// Qwen3 with experts (30B-A3B, Coder; transformers models/qwen3_moe): Qwen3's attention, and in the layers that
// decoder_sparse_step and mlp_only_layers leave, experts in place of the MLP. transformers 5 writes either one stack a
// layer or one tensor an expert; both are read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/experts.h"
#include "models/families.h"
#include "models/sliding.h"

namespace onw {
namespace {

ExpertNames expert_names(const Experts& experts) {
  const std::string fused = "mlp.experts.gate_up_proj", one = "mlp.experts.{e}.";
  return {.router = {"mlp.gate.weight"},
          .hugging_face = {.gate = {{one + "gate_proj.weight", fused}},
                           .up = {{one + "up_proj.weight", fused}, Fold::none, experts.intermediate},
                           .down = {{one + "down_proj.weight", "mlp.experts.down_proj"}}}};
}

Value qwen3_moe_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  x = block.residual("attn_add", x,
                     block.attention(block.norm("attn_norm", x, "attn_norm", "input_layernorm", "attn_norm")));
  const Value h = block.norm("mlp_norm", x, "mlp_norm", "post_attention_layernorm", "ffn_norm");
  const Value y = c.has_experts(layer) ? routed_experts(b, c.experts, expert_names(c.experts), layer, h, c.activation)
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

Result<Program> build_qwen3_moe(const Config& config) {
  auto c = read_decoder_config("qwen3_moe", config);
  RETURN_IF_ERROR(c);
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";  // as transformers 5 writes it
  auto experts = read_experts(config, count, "num_experts_per_tok", "moe_intermediate_size");
  RETURN_IF_ERROR(experts);
  c->experts = std::move(*experts);
  c->experts.renormalise = config.boolean("norm_topk_prob", false);
  RETURN_IF_ERROR(read_sparse_layers(config, *c));
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", false);
  c->qk_norm = true;
  RETURN_IF_ERROR(read_qwen_windows(config, *c));
  auto rope = config.rope("rope", "", c->head_dim, 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return decoder_program(*c, qwen3_moe_block);
}

// Such files do not say whether weights are renormalised (every published model's are), nor which layers are dense
// (none is).
Result<Json> qwen3_moe_config_from_gguf(const Json& m) {
  Json with_width = m;  // the width of an MLP that no layer has may be missing
  if (!m.contains("qwen3moe.feed_forward_length") && m.contains("qwen3moe.expert_feed_forward_length"))
    with_width["qwen3moe.feed_forward_length"] = m["qwen3moe.expert_feed_forward_length"];
  auto c = decoder_config_from_gguf(with_width, "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM");
  RETURN_IF_ERROR(c);
  for (const auto& [from, to] : {std::pair{"qwen3moe.expert_count", "num_experts"},
                                 std::pair{"qwen3moe.expert_used_count", "num_experts_per_tok"},
                                 std::pair{"qwen3moe.expert_feed_forward_length", "moe_intermediate_size"}}) {
    if (!m.contains(from)) return error(Code::bad_format, "the GGUF file has no '{}'", from);
    (*c)[to] = m[from];
  }
  (*c)["norm_topk_prob"] = true;
  return c;
}

}  // namespace onw
