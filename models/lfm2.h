// What LFM2 and its mixtures of experts share: everything but the feed-forward part.
#pragma once

#include "models/decoder.h"

namespace onw {

// Sizes, kinds of layers, names and the rotary table, from a config whose 'intermediate_size' is the MLP's width.
// Errors: bad_format, unsupported.
Result<DecoderConfig> read_lfm2_config(std::string_view family, const Config& config);

// x + mixer(norm(x)): attention or a short convolution; then x + mlp(norm(x)), or experts in layers that have them.
Value lfm2_block(Builder& b, const DecoderConfig& c, int layer, Value x);

// Experts chosen by sigmoid and a bias.
Value lfm2_experts(Builder& b, const DecoderConfig& c, int layer, Value h);

// config.json of a GGUF file with keys "<arch>.…".
Result<Json> lfm2_config_from_gguf_keys(const Json& metadata, std::string_view arch, std::string_view model_type,
                                        std::string_view architecture);

}  // namespace onw
