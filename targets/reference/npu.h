// The arithmetic of the NPU, as far as it is known: what the reference does to the results of primitives in NPU mode.
#pragma once

#include "graph/graph.h"
#include "targets/reference/tensor.h"

namespace onw::reference {

// The largest finite FP16 number and the smallest that keeps all its digits.
constexpr float kHalfMax = 65504.0f;
constexpr float kHalfTiny = 0x1p-14f;

// x as the NPU holds it: the nearest FP16 number, beyond the largest infinite, and zero where FP16 would be subnormal.
float npu_value(float x);

// All values of a tensor so; integers and flags stay.
void npu_round(Tensor& t);

// Whether node i is a product with INT8 codes that come at run time. The NPU sums such codes as they are and multiplies
// with their scales afterwards, and the sum stops at +-kHalfMax.
bool sums_raw_codes(const Function& f, const Node& n);

// The sums of such a product.
void npu_saturate(Tensor& t);

// Two faults of the device that no arithmetic explains. What it gives instead is not known: NaN here, so that nothing
// can rest on it. A product of two run-time values is right in its first 256 columns only (seen with heads of 512
// values; taken as: where the second is not transposed, or is V, which exp or softmax weighs); a soft cap behind a
// product with a weight is wrong for 16 rows (taken as: or more).
constexpr int64_t kNpuColumns = 256;
constexpr int64_t kNpuCapRows = 16;
void npu_spoil(const Function& f, const Node& n, Tensor& t);

}  // namespace onw::reference
