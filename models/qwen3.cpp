// Qwen3: head_dim of its own, RMS norms of q and k per head before RoPE, no biases (transformers models/qwen3).
#include "models/qwen3.h"

#include <nlohmann/json.hpp>

#include "models/families.h"
#include "models/sliding.h"

namespace onw {

Result<DecoderConfig> read_qwen3_config(std::string_view family, const Config& config) {
  auto c = read_decoder_config(family, config);
  RETURN_IF_ERROR(c);
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", false);
  c->qk_norm = true;
  RETURN_IF_ERROR(read_qwen_windows(config, *c));
  auto rope = config.rope("rope", "", c->head_dim, 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return c;
}

Result<Program> build_qwen3(const Config& config) {
  const auto c = read_qwen3_config("qwen3", config);
  RETURN_IF_ERROR(c);
  return decoder_program(*c, pre_norm_block);
}

Result<Json> qwen3_config_from_gguf(const Json& metadata) {
  return decoder_config_from_gguf(metadata, "qwen3", "qwen3", "Qwen3ForCausalLM");
}

}  // namespace onw
