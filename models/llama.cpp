// Llama 2 and 3, SmolLM2, llm-jp and others of LlamaForCausalLM (transformers models/llama; facts: Touvron et al.
// 2023).
#include <nlohmann/json.hpp>

#include "models/families.h"

namespace onw {

Result<Program> build_llama(const Config& config) {
  auto c = read_decoder_config("llama", config);
  RETURN_IF_ERROR(c);
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", false);
  c->mlp_bias = config.boolean("mlp_bias", false);
  c->gguf_qk_fold = Fold::rope_unpair;
  auto rope = config.rope("rope", "", c->head_dim, 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return decoder_program(*c, pre_norm_block);
}

Result<Json> llama_config_from_gguf(const Json& metadata) {
  return decoder_config_from_gguf(metadata, "llama", "llama", "LlamaForCausalLM");
}

}  // namespace onw
