// OpenAI's gpt-oss: experts in every layer, published as MXFP4 or BF16, whose gates and ups stand in turns; a sink per
// head in attention; every other layer slides (transformers models/gpt_oss).
#include <nlohmann/json.hpp>

#include "models/experts.h"
#include "models/families.h"

namespace onw {
namespace {

ExpertNames expert_names() {
  const std::string e = "mlp.experts.";
  const auto weight = [&](const std::string& name, int64_t begin, int64_t step) {
    return WeightSource{{e + name, e + name + "_blocks"}, Fold::none, begin, step, true};
  };
  const auto bias = [&](const std::string& name, int64_t begin, int64_t step) {
    return WeightSource{{e + name + "_bias"}, Fold::none, begin, step};
  };
  return {.router = {"mlp.router.weight"},
          .hugging_face = {.gate = weight("gate_up_proj", 0, 2),
                           .up = weight("gate_up_proj", 1, 2),
                           .down = weight("down_proj", 0, 1),
                           .gate_bias = bias("gate_up_proj", 0, 2),
                           .up_bias = bias("gate_up_proj", 1, 2),
                           .down_bias = bias("down_proj", 0, 1)},
          .router_bias = {"mlp.router.bias"}};
}

Value gpt_oss_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  x = block.residual("attn_add", x,
                     block.attention(block.norm("attn_norm", x, "attn_norm", "input_layernorm", "attn_norm")));
  const Value h = block.norm("mlp_norm", x, "mlp_norm", "post_attention_layernorm", "post_attention_norm");
  return block.residual("mlp_add", x, routed_experts(b, c.experts, expert_names(), layer, h, c.activation));
}

// layer_types, else every other layer from the first on.
Result<void> read_windows(const Config& config, DecoderConfig& c) {
  const int64_t window = config.integer("sliding_window", 128);
  if (window < 1 || window > INT32_MAX)
    return error(Code::bad_format, "config.json: 'sliding_window' is {}, expected 1 to 2^31 - 1", window);
  const auto kinds = config.strings("layer_types");
  if (!kinds.empty() && static_cast<int64_t>(kinds.size()) != c.layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), c.layers);
  for (const std::string& kind : kinds)
    if (kind != "sliding_attention" && kind != "full_attention")
      return error(Code::unsupported,
                   "config.json: layer_types has '{}'; gpt_oss has sliding_attention and full_attention", kind);
  for (int64_t i = 0; i < c.layers; ++i) {
    const bool slides = kinds.empty() ? i % 2 == 0 : kinds[static_cast<size_t>(i)] == "sliding_attention";
    c.windows.push_back(slides ? window : 0);
  }
  return {};
}

}  // namespace

Result<Program> build_gpt_oss(const Config& config) {
  auto c = read_decoder_config("gpt_oss", config);
  RETURN_IF_ERROR(c);
  auto experts = read_experts(config, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  RETURN_IF_ERROR(experts);
  c->experts = std::move(*experts);
  c->experts.kind = "softmax_chosen";
  c->experts.biases = true;
  c->experts.limit = config.number("swiglu_limit", 7);
  c->experts.alpha = config.number("swiglu_alpha", 1.702);
  if (!(c->experts.limit > 0) || !(c->experts.alpha > 0))
    return error(Code::bad_format, "config.json: 'swiglu_limit' is {} and 'swiglu_alpha' {}, both must be positive",
                 c->experts.limit, c->experts.alpha);
  c->activation = "swiglu_clamped";
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", true);
  c->sinks = true;
  RETURN_IF_ERROR(read_windows(config, *c));
  auto rope = config.rope("rope", "", c->head_dim, 150000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return decoder_program(*c, gpt_oss_block);
}

// Such files do not say how YaRN's ends are rounded (they are not), nor which layers slide (those with even numbers).
Result<Json> gpt_oss_config_from_gguf(const Json& m) {
  auto c = decoder_config_from_gguf(with_mlp_width(m, "gpt-oss"), "gpt-oss", "gpt_oss", "GptOssForCausalLM");
  RETURN_IF_ERROR(c);
  RETURN_IF_ERROR(experts_from_gguf(m, "gpt-oss", "num_local_experts", "intermediate_size", *c));
  if (c->contains("rope_scaling")) (*c)["rope_scaling"]["truncate"] = false;
  return c;
}

}  // namespace onw
