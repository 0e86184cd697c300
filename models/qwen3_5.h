// What the dense and the sparse Qwen3.5 share: everything but the MLP.
#pragma once

#include "models/decoder.h"

namespace onw {

// Sizes, kinds of layers, rotary table. Errors: bad_format, unsupported.
Result<DecoderConfig> read_qwen3_5_config(std::string_view family, const Config& config);

// x + mixer(norm(x)): attention with an output gate, or the gated delta rule.
Value qwen3_5_mixed(Builder& b, const DecoderConfig& c, int layer, Value x);

// x + mixer(norm(x)), then x + mlp(norm(x)): the MLP, or experts beside one that every token takes (experts.count > 0).
Value qwen3_5_block(Builder& b, const DecoderConfig& c, int layer, Value x);

// The experts of a layer, and the shared one, which lies as the decoder's own MLP (c.intermediate, c.names), times the
// sigmoid of its gate.
Value qwen3_5_experts(Builder& b, const DecoderConfig& c, int layer, Value h);

// config.json of a GGUF file with keys "<arch>.…".
Result<Json> qwen3_5_config_from_gguf_keys(const Json& metadata, std::string_view arch, std::string_view model_type,
                                           std::string_view architecture);

}  // namespace onw
