// The gated delta rule as a mixer of tokens (Gated DeltaNet, arXiv 2412.06464; transformers models/qwen3_5).
#pragma once

#include "models/decoder.h"

namespace onw {

// linear_num_key_heads and its kin, with limits far beyond any model's. Errors: bad_format.
Result<GatedDeltaConfig> read_gated_delta(const Config& config);

// h [S, hidden] -> [S, hidden]. q, k and v go through a short convolution and SiLU; q and k have unit length, q is
// divided by sqrt(key_dim); beta = sigmoid(b), the logarithm of the decay is -e^A softplus(a + dt_bias), per value
// head; the result is normed per head and multiplied by silu(z). States "conv.N" and "delta.N".
Value gated_delta(Builder& b, const DecoderConfig& c, int layer, Value h);

}  // namespace onw
