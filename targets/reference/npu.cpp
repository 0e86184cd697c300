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
  if (n.op == Op::input) return n.type.dtype == DType::i8 || n.type.dtype == DType::i4;
  const bool moves = n.op == Op::convert || n.op == Op::reshape || n.op == Op::transpose || n.op == Op::slice;
  return moves && run_time_codes(f, n.inputs[0]);
}

// What attention weighs V with.
bool weighs(const Function& f, Value v) {
  const Node& n = f.node(v);
  if (n.op == Op::exp || n.op == Op::softmax) return true;
  const bool keeps = n.op == Op::multiply || n.op == Op::divide || n.op == Op::reshape || n.op == Op::slice;
  return keeps && weighs(f, n.inputs[0]);
}

// Of two values that are neither weights nor constants, the second not transposed, or V.
bool run_time_product(const Function& f, const Node& n) {
  if (n.op != Op::matmul || (n.attributes.integer("transpose_b") != 0 && !weighs(f, n.inputs[0]))) return false;
  return std::ranges::none_of(n.inputs,
                              [&](Value v) { return f.node(v).op == Op::weight || f.node(v).op == Op::constant; });
}

// tanh(x w / cap).
bool caps_product(const Function& f, const Node& n) {
  if (n.op != Op::tanh || f.node(n.inputs[0]).op != Op::multiply) return false;
  const Node& product = f.node(f.node(n.inputs[0]).inputs[0]);
  return product.op == Op::matmul && f.node(product.inputs[1]).op == Op::weight;
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

void npu_spoil(const Function& f, const Node& n, Tensor& t) {
  const int64_t columns = t.type.last();
  const int64_t right = caps_product(f, n) && t.rows() >= kNpuCapRows ? 0
                        : run_time_product(f, n)                      ? kNpuColumns
                                                                      : columns;
  if (right >= columns) return;
  for (size_t i = 0; i < t.f.size(); ++i)
    if (static_cast<int64_t>(i) % columns >= right) t.f[i] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace onw::reference
