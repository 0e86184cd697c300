// y[rows, outputs] = linear(x[rows, inputs], weight): the arithmetic of docs/arithmetic.md, the same bits on every
// instruction set.
#pragma once

#include <cstdint>

#include "graph/weight_view.h"
#include "kernels/isa.h"
#include "kernels/rows.h"

namespace onw {

// Blocks of 16 outputs, [first, last): what one thread computes. Pairs of blocks run faster than single ones, so cut at
// even numbers.
struct BlockRange {
  int64_t first = 0;
  int64_t last = 0;
};

// Rows of FP32, for plain weights. `stride` in floats.
struct FloatRows {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t stride = 0;
};

// Where the result goes, and what is done to it on the way: y[r * stride + o] = residual[r * residual_stride + o]
// + (result + bias[o]), each sum rounded, absent parts left out. `residual` may be `y` itself. Outputs beyond the
// weight's are not touched.
struct MatmulOutput {
  float* y = nullptr;
  int64_t stride = 0;           // floats
  const float* bias = nullptr;  // [outputs]
  const float* residual = nullptr;
  int64_t residual_stride = 0;
};

// Quantised weights, in tiles or (at some cost per byte) in rows. For every row and output, D = the smaller of the
// weight's and the activation's group:
//   acc = 0; for each D inputs in ascending order:
//     acc = fma(float(sum of value * code), (half_to_float(scale) * step) * x_scale, acc)
//     acc = fma(float(sum of code), half_to_float(minimum) * x_scale, acc)      where the format has a minimum
// with sums in INT32 (value, step: quant/codebook.h; the scale, minimum and x_scale are those of the group around the D
// inputs), products and sums of floats in FP32.
void matmul(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa);

// Plain weights, in tiles or rows: acc = 0; for k ascending: acc = fma(x_k, w_k, acc).
void matmul(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa);

// The same results, output by output, from either layout and without a fast path: what the reference target calls.
void matmul_reference(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);
void matmul_reference(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);

}  // namespace onw
