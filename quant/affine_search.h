// Scale and minimum of a group of few unsigned codes, chosen by what they cost: with two bits the smallest and the
// largest weight say little about where four levels should lie.
#pragma once

#include <cstdint>
#include <span>

#include "quant/codebook.h"

namespace onw {

// F16 bits: w = scale * code + minimum.
struct AffineScale {
  uint16_t scale = 0;
  uint16_t minimum = 0;
};

// What a group costs: the sum of squared errors, each counted as weighted_error does (quant/scale_search.h).
float affine_error(std::span<const float> w, std::span<const float> importance, AffineScale at, CodeRange range);

// The pair with the least affine_error among some twenty starting intervals, each moved to the least-squares scale and
// minimum of its codes, and `start`. `start` stays where nothing is better, so the error never grows; a group whose
// values lie on two, three or four equally spaced F16 levels (ternary models) keeps them exactly where their spacing is
// an F16 number. Weights are finite; importance is >= 0, finite, of w's size or empty.
AffineScale search_affine(std::span<const float> w, std::span<const float> importance, AffineScale start,
                          CodeRange range);

}  // namespace onw
