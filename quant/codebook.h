// What a stored code stands for: the small integer that multiplies the activation, and what is left to its scale.
#pragma once

#include <array>
#include <cstdint>

#include "graph/weight_format.h"

namespace onw {

// w = scale * step * value (+ minimum). The kernels fold `step` into the scale: one FP32 product, half_to_float(s) *
// step.
struct CodeValues {
  std::array<int8_t, 16> value{};  // by code, for codebooks and 4-bit integers (index: the nibble as `rows` stores it)
  float step = 1.0f;
};
const CodeValues& code_values(const FormatInfo& format);

// The 16 levels of true NF4 in FP32 (QLoRA, arXiv:2305.14314, appendix E): what an NPU computes. The CPU uses
// round(127 * level) / 127.
const std::array<float, 16>& nf4_levels();

// How codes lie in `tiles`: byte or nibble = (as in `rows`) xor this. 4-bit integers 0x8, 8-bit integers 0x80;
// 0 for codes of a codebook and for formats with a minimum, which are unsigned in both layouts.
int tiles_flip(const FormatInfo& format);

// The code as the file of `rows` means it lies in [lowest, highest]; an index for codebooks.
struct CodeRange {
  int lowest = 0;
  int highest = 0;
};
CodeRange code_range(const FormatInfo& format);

}  // namespace onw
