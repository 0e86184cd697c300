// The host's part of RoPE: cos and sin of a position, the same bits on every machine.
#pragma once

#include <span>

namespace onw {

// One row of a RoPE table, [inv_freq.size()] each. Angles are FP32 as the publishers compute them (position *
// inv_freq[i], rounded once), their cosine and sine double, rounded to FP32, then times `scale` (1 but for YaRN and
// LongRoPE).
void rope_row(float position, std::span<const float> inv_freq, float scale, float* cos, float* sin);

}  // namespace onw
