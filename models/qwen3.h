// What Qwen3 and its mixtures of experts share: attention's keys, and how experts are published.
#pragma once

#include "models/decoder.h"

namespace onw {

// Sizes, biases, norms of q and k, windows and the rotary table. Errors: bad_format, unsupported.
Result<DecoderConfig> read_qwen3_config(std::string_view family, const Config& config);

// num_experts (transformers 5 writes num_local_experts), num_experts_per_tok and moe_intermediate_size. Errors:
// bad_format.
Result<Experts> read_qwen_experts(const Config& config);

// "mlp.gate" and "mlp.experts": one tensor an expert, or one stack a layer with gates over ups.
ExpertNames qwen_expert_names(const Experts& experts);

}  // namespace onw
