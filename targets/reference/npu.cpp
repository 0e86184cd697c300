#include "targets/reference/npu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "graph/ops.h"

namespace onw::reference {
namespace {

bool run_time_codes(const Function& f, Value v) {
  const Node& n = f.node(v);
  if (n.op == Op::input) return n.type.dtype == DType::i8;
  const bool moves = n.op == Op::convert || n.op == Op::reshape || n.op == Op::transpose || n.op == Op::slice;
  return moves && run_time_codes(f, n.inputs[0]);
}

}  // namespace

float npu_value(float x) {
  const float half = half_to_float(float_to_half(x));
  return std::fabs(half) < kHalfTiny ? std::copysign(0.0f, x) : half;
}

void npu_round(Tensor& t) {
  if (t.type.dtype != DType::f32 && t.type.dtype != DType::f16) return;
  for (float& x : t.f) x = npu_value(x);
}

bool sums_raw_codes(const Function& f, const Node& n) {
  return n.op == Op::matmul && (run_time_codes(f, n.inputs[0]) || run_time_codes(f, n.inputs[1]));
}

void npu_saturate(Tensor& t) {
  for (float& x : t.f) x = std::isnan(x) ? x : std::clamp(x, -kHalfMax, kHalfMax);
}

void npu_spoil_wide_product(const Function& f, const Node& n, Tensor& t) {
  const int64_t columns = t.type.last();
  if (n.op != Op::matmul || n.attributes.integer("transpose_b") != 0 || columns <= kNpuColumns) return;
  for (const Value v : n.inputs)
    if (f.node(v).op == Op::weight || f.node(v).op == Op::constant) return;
  for (size_t i = 0; i < t.f.size(); ++i)
    if (static_cast<int64_t>(i) % columns >= kNpuColumns) t.f[i] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace onw::reference
