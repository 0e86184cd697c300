// The scale of a group of integer codes, chosen by what it costs instead of by the largest weight alone.
#pragma once

#include <cstdint>
#include <span>

#include "quant/codebook.h"

namespace onw {

// What a weight's error counts: (|w| + RMS of the group) * importance, importance being the mean square of the
// activation that meets the weight, 1 where `importance` is empty. Without activations |w| stands in: large weights sit
// where large activations are, and plain squared error, which clips them, makes whole models worse (docs/quality.md).
float weighted_error(std::span<const float> w, std::span<const float> importance, float scale, CodeRange range);

// F16 bits of the scale with the least weighted_error among largest |w| / t for some twenty t, each moved to the
// least-squares scale of its codes, and `start`. `start` stays where nothing is better, so the error never grows; a
// group that is scale * code already keeps its values. Weights are finite; importance is >= 0, finite, of w's size or
// empty.
uint16_t search_scale(std::span<const float> w, std::span<const float> importance, uint16_t start, CodeRange range);

// Half to even, clamped: the code of w at a scale.
inline float nearest_code(float w_over_scale, CodeRange range) {
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds, as vectors too
  const auto low = static_cast<float>(range.lowest), high = static_cast<float>(range.highest);
  const float x = w_over_scale < low ? low : w_over_scale > high ? high : w_over_scale;
  return (x + kRound) - kRound;
}

}  // namespace onw
