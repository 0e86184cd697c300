// The block-diagonal normalised Walsh-Hadamard transform of a row, in natural (Sylvester) order: what models that were
// quantised in a rotated basis do to the input of a product.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace onw {

// n is a multiple of `block`, a power of two; signs [n] are +-1. Per block of x, with z = x * signs, or z = x where it
// is the inverse:
//   for h = 1, 2, 4, ... block / 2: (z[i], z[i + h]) <- (z[i] + z[i + h], z[i] - z[i + h]), i / h even
//   out = z * float(1 / sqrt(block)), times signs where it is the inverse
// Each sum and product is rounded to FP32: the same bits on every instruction set.
struct Hadamard {
  const float* signs = nullptr;
  int64_t n = 0;
  int64_t block = 0;
  bool inverse = false;
};

// x, signs and out hold n floats; out may be x.
void hadamard(const Hadamard& form, const float* x, float* out, Isa isa);

}  // namespace onw
