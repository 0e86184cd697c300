// How far a quantised weight is from the original.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "graph/weight_view.h"

namespace onw {

// Sums over a tensor, piece by piece: relative RMS error = sqrt(sum (w - w')^2 / sum w^2), 0 for a zero tensor.
struct WeightError {
  double error2 = 0;
  double norm2 = 0;
  double relative_rms() const { return norm2 > 0 ? std::sqrt(error2 / norm2) : 0; }
  void add(const WeightError& other) {
    error2 += other.error2;
    norm2 += other.norm2;
  }
};

// Compares all rows of `weight` with `original` [outputs, inputs].
WeightError weight_error(std::span<const float> original, const WeightView& weight);

// The error that the CPU's rounded NF4 levels add to true NF4 (docs/arithmetic.md), relative to the true dequantised
// weight.
WeightError nf4_rounding_error(const WeightView& weight);

}  // namespace onw
