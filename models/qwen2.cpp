// Qwen2 and Qwen2.5: Llama with biases on q, k and v that no config key announces (transformers models/qwen2).
#include <nlohmann/json.hpp>

#include "models/families.h"
#include "models/sliding.h"

namespace onw {

Result<Program> build_qwen2(const Config& config) {
  auto c = read_decoder_config("qwen2", config);
  RETURN_IF_ERROR(c);
  c->qkv_bias = true;
  RETURN_IF_ERROR(read_qwen_windows(config, *c));
  auto rope = config.rope("rope", "", c->head_dim, 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return decoder_program(*c, pre_norm_block);
}

Result<Json> qwen2_config_from_gguf(const Json& metadata) {
  return decoder_config_from_gguf(metadata, "qwen2", "qwen2", "Qwen2ForCausalLM");
}

}  // namespace onw
