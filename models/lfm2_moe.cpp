// LFM2 with experts (8B-A1B and its kin; transformers models/lfm2_moe): the first layers are dense; the others choose
// experts by sigmoid and a bias that does not enter the weights.
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "models/families.h"
#include "models/lfm2.h"

namespace onw {

Value lfm2_experts(Builder& b, const DecoderConfig& c, int layer, Value h) {
  ExpertNames names = stacked_or_single(c.experts, "feed_forward.experts.", {"w1", "w3", "w2"});
  names.router = {"feed_forward.gate.weight"};
  names.choice_bias = {"feed_forward.expert_bias"};
  return routed_experts(b, c.experts, names, layer, h, c.activation);
}

Result<Program> build_lfm2_moe(const Config& config) {
  auto c = read_lfm2_config("lfm2_moe", config);
  RETURN_IF_ERROR(c);
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";
  auto experts = read_experts(config, count, "num_experts_per_tok", "moe_intermediate_size");
  RETURN_IF_ERROR(experts);
  c->experts = std::move(*experts);
  c->experts.kind = "sigmoid";
  c->experts.renormalise = config.boolean("norm_topk_prob", true);
  c->experts.eps = c->experts.renormalise ? 1e-6 : 0;
  c->experts.scale = config.number("routed_scaling_factor", 1);
  c->experts.choice_bias = config.boolean("use_expert_bias", true);
  if (!(c->experts.scale > 0 && c->experts.scale <= 1e6))
    return error(Code::bad_format, "config.json: 'routed_scaling_factor' is {}, expected more than 0 and at most 10^6",
                 c->experts.scale);
  const int64_t dense = config.integer("num_dense_layers", 2);
  if (dense < 0 || dense > c->layers)
    return error(Code::bad_format, "config.json: 'num_dense_layers' is {}, expected 0 to {}, the number of layers",
                 dense, c->layers);
  for (int64_t layer = 0; layer < c->layers; ++layer) c->expert_layers.push_back(layer >= dense);
  return decoder_program(*c, lfm2_block);
}

// Such files do not say whether weights are renormalised (every published model's are).
Result<Json> lfm2_moe_config_from_gguf(const Json& m) {
  constexpr const char* kArch = "lfm2moe";
  constexpr int64_t kSigmoid = 2;  // of llama.cpp's numbers of gating functions
  auto c = lfm2_config_from_gguf_keys(with_mlp_width(m, kArch), kArch, "lfm2_moe", "Lfm2MoeForCausalLM");
  RETURN_IF_ERROR(c);
  RETURN_IF_ERROR(experts_from_gguf(m, kArch, "num_experts", "moe_intermediate_size", *c));
  const int64_t gating = find_int(m, "lfm2moe.expert_gating_func").value_or(kSigmoid);
  if (gating != kSigmoid)
    return error(Code::unsupported, "the GGUF file's 'lfm2moe.expert_gating_func' is {}, only {} (sigmoid) is known",
                 gating, kSigmoid);
  (*c)["num_dense_layers"] = find_int(m, "lfm2moe.leading_dense_block_count").value_or(0);
  (*c)["routed_scaling_factor"] = find_number(m, "lfm2moe.expert_weights_scale").value_or(1);
  (*c)["norm_topk_prob"] = (*c)["use_expert_bias"] = true;
  return c;
}

}  // namespace onw
