// The functions of each family file, for the registry.
#pragma once

#include "models/decoder.h"

namespace onw {

Result<Program> build_llama(const Config& config);
Result<Json> llama_config_from_gguf(const Json& metadata);
Result<Program> build_qwen2(const Config& config);
Result<Json> qwen2_config_from_gguf(const Json& metadata);
Result<Program> build_qwen3(const Config& config);
Result<Json> qwen3_config_from_gguf(const Json& metadata);
Result<Program> build_qwen3_moe(const Config& config);
Result<Json> qwen3_moe_config_from_gguf(const Json& metadata);
Result<Program> build_gpt_oss(const Config& config);
Result<Json> gpt_oss_config_from_gguf(const Json& metadata);
Result<Program> build_granite(const Config& config);
Result<Program> build_granite_hybrid(const Config& config);
Result<Json> granite_config_from_gguf(const Json& metadata);
Result<Program> build_gemma3(const Config& config);
Result<Json> gemma3_config_from_gguf(const Json& metadata);
Result<Program> build_gemma4(const Config& config);
Result<Json> gemma4_config_from_gguf(const Json& metadata);
Result<Program> build_lfm2(const Config& config);
Result<Json> lfm2_config_from_gguf(const Json& metadata);
Result<Program> build_lfm2_moe(const Config& config);
Result<Json> lfm2_moe_config_from_gguf(const Json& metadata);
Result<Program> build_qwen3_5(const Config& config);
Result<Program> build_qwen3_5_mtp(const Config& config, int64_t short_vocabulary);
Result<Program> build_qwen3_5_moe_mtp(const Config& config, int64_t short_vocabulary);
Result<Json> qwen3_5_config_from_gguf(const Json& metadata);
Result<Program> build_qwen3_5_moe(const Config& config);
Result<Json> qwen3_5_moe_config_from_gguf(const Json& metadata);

}  // namespace onw
