// Qwen3.5 with experts, text (35B-A3B and its kin; transformers models/qwen3_5_moe): in every layer, experts chosen by
// softmax over all and weighed among the chosen, and beside them one that every token takes, gated by itself.
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "graph/ops.h"
#include "models/families.h"
#include "models/mtp.h"
#include "models/qwen3.h"
#include "models/qwen3_5.h"

namespace onw {

Value qwen3_5_experts(Builder& b, const DecoderConfig& c, int layer, Value h) {
  const Value routed = routed_experts(b, c.experts, qwen_expert_names(c.experts), layer, h, c.activation);
  DecoderBlock words(b, c, layer);
  const Value shared = words.mlp(h);
  const std::string prefix = fmt::format("layers.{}.", layer);
  const Value w =
      b.weight({.name = prefix + "mlp.shared_gate",  // one row decides about a whole product: it stays plain
                .shape = {1, c.hidden},
                .role = WeightRole::router,
                .hugging_face = {{prefix + "mlp.shared_expert_gate.weight"}},
                .gguf = {{fmt::format("blk.{}.ffn_gate_inp_shexp.weight", layer)}}});
  const Value gate = b.node(Op::activate, "shared_gate", {b.linear("shared_gate_proj", h, w)},
                            {{"activation", std::string("sigmoid")}});
  return b.add("shared_add", routed, b.node(Op::multiply, "shared_gated", {gate, shared}));
}

static Result<DecoderConfig> read_qwen3_5_moe_config(const Config& published) {
  const auto shared = published.dimension("shared_expert_intermediate_size");
  RETURN_IF_ERROR(shared);
  Json named = published.json();
  named["intermediate_size"] = *shared;
  const Config config = published.with(std::move(named));
  auto c = read_qwen3_5_config("qwen3_5_moe", config);
  RETURN_IF_ERROR(c);
  auto experts = read_qwen_experts(config);
  RETURN_IF_ERROR(experts);
  c->experts = std::move(*experts);
  c->experts.renormalise = true;
  c->expert_layers.assign(static_cast<size_t>(c->layers), true);
  c->names.gate = "mlp.shared_expert.gate_proj", c->names.gguf_gate = "ffn_gate_shexp";
  c->names.up = "mlp.shared_expert.up_proj", c->names.gguf_up = "ffn_up_shexp";
  c->names.down = "mlp.shared_expert.down_proj", c->names.gguf_down = "ffn_down_shexp";
  return c;
}

Result<Program> build_qwen3_5_moe(const Config& config) {
  const auto c = read_qwen3_5_moe_config(config);
  RETURN_IF_ERROR(c);
  return decoder_program(*c, qwen3_5_block);
}

Result<Program> build_qwen3_5_moe_mtp(const Config& config, int64_t short_vocabulary) {
  auto c = read_qwen3_5_moe_config(config);
  RETURN_IF_ERROR(c);
  return mtp_program(std::move(*c), qwen3_5_block, short_vocabulary);
}

Result<Json> qwen3_5_moe_config_from_gguf(const Json& m) {
  constexpr const char* kArch = "qwen35moe";
  constexpr const char* kShared = "qwen35moe.expert_shared_feed_forward_length";
  auto c = qwen3_5_config_from_gguf_keys(with_mlp_width(m, kArch), kArch, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM");
  RETURN_IF_ERROR(c);
  RETURN_IF_ERROR(experts_from_gguf(m, kArch, "num_experts", "moe_intermediate_size", *c));
  const int64_t routed = find_int(*c, "moe_intermediate_size").value_or(0);
  if (const int64_t shared = m.contains(kShared) ? find_int(m, kShared).value_or(0) : routed; shared > 0)
    (*c)["shared_expert_intermediate_size"] = shared;
  else
    return error(Code::bad_format, "the GGUF file's '{}' is {}, expected a whole number from 1 on", kShared,
                 dump_json(m[kShared], -1).substr(0, 40));
  c->erase("intermediate_size");
  return c;
}

}  // namespace onw
