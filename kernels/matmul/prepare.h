// From the public arguments to what a kernel is given: weights in tiles.
#pragma once

#include "kernels/matmul/call.h"
#include "kernels/matmul/matmul.h"

namespace onw::matmul_kernels {

Call prepare(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);
Call prepare(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);

// Weights in the layout `rows`.
void matmul_rows(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa);
void matmul_rows(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa);

}  // namespace onw::matmul_kernels
