// From the public arguments to what a kernel is given.
#pragma once

#include "kernels/matmul/call.h"
#include "kernels/matmul/matmul.h"

namespace onw::matmul_kernels {

Call prepare(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);
Call prepare(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out);

}  // namespace onw::matmul_kernels
