// The functions of kernels/scalar.h over vectors: the same operations in the same order, so the same bits in every
// lane. V is a struct of kernels/simd_*.h. Only files of one instruction set include this.
#pragma once

#include <cstddef>

#include "kernels/coefficients.h"

namespace onw::forms {

template <class V, size_t N>
inline typename V::F polynomial(const float (&coefficients)[N], typename V::F x) {
  typename V::F p = V::set(coefficients[0]);
  for (size_t i = 1; i < N; i++) p = V::fma(p, x, V::set(coefficients[i]));
  return p;
}

template <class V>
inline typename V::F exp(typename V::F x) {
  const auto rounder = V::set(kRounder);
  const auto shifted = V::fma(x, V::set(kLog2E), rounder);
  const auto n = shifted - rounder;
  auto r = V::fma(n, V::set(kMinusLn2), x);
  r = V::fma(n, V::set(kMinusLn2Rest), r);
  const auto p = V::set(1.0f) + V::fma(polynomial<V>(kExpTail, r), r * r, r);
  auto y = V::scale_by_power(p, shifted);
  y = V::select(V::less(x, V::set(kExpLowest)), V::set(0.0f), y);
  return V::select(V::not_less_equal(x, V::set(kExpHighest)), x + V::set(__builtin_inff()), y);
}

// exp for x <= 0 or NaN, which needs no upper edge.
template <class V>
inline typename V::F exp_of_nonpositive(typename V::F x) {
  if constexpr (requires { V::scale_or_zero(x, x, x, x); }) {
    const auto n = V::fma(x, V::set(kLog2E), V::set(kRounder)) - V::set(kRounder);
    auto r = V::fma(n, V::set(kMinusLn2), x);
    r = V::fma(n, V::set(kMinusLn2Rest), r);
    const auto p = V::set(1.0f) + V::fma(polynomial<V>(kExpTail, r), r * r, r);
    return V::scale_or_zero(p, n, x, V::set(kExpLowest));
  } else {
    return exp<V>(x);
  }
}

template <class V>
inline typename V::F tanh(typename V::F x) {
  const auto a = V::abs(x);
  const auto y = x * x;
  const auto near = V::fma(polynomial<V>(kTanhTail, y) * y, x, x);
  const auto far = V::set(1.0f) - V::set(2.0f) / (exp<V>(a + a) + V::set(1.0f));
  return V::select(V::less(a, V::set(0.625f)), near, V::copysign(far, x));
}

template <class V>
inline typename V::F sigmoid(typename V::F x) {
  return V::set(1.0f) / (V::set(1.0f) + exp<V>(-x));
}

template <class V>
inline typename V::F silu(typename V::F x) {
  return x / (V::set(1.0f) + exp<V>(-x));
}

template <class V>
inline typename V::F gelu_tanh(typename V::F x) {
  const auto minus_2u = x * V::fma(x * x, V::set(-kGeluCubic), V::set(-kGeluLinear));
  return x / (V::set(1.0f) + exp<V>(minus_2u));
}

template <class V>
inline typename V::F gelu_erf(typename V::F x) {
  const auto a = V::abs(x);
  const auto near = V::fma(polynomial<V>(kPhiOdd, x * x), x, V::set(0.5f));
  const auto b = V::select(V::less(V::set(14.5f), a), V::set(14.5f), a);
  const auto half = V::set(0.5f) * b;
  const auto square = half * b;
  const auto lost = V::fma(half, b, -square);
  auto e = exp<V>(-square);
  e = V::fma(-lost, e, e);
  const auto tail = e * polynomial<V>(kPhiTail, V::set(3.0f) / (b + V::set(3.0f)));
  const auto far = V::select(V::less(x, V::set(0.0f)), tail, V::set(1.0f) - tail);
  return x * V::select(V::less(a, V::set(1.25f)), near, far);
}

template <class V>
inline typename V::F soft_cap(typename V::F x, float cap) {
  return V::set(cap) * tanh<V>(x / V::set(cap));
}

template <class V>
inline typename V::F softplus(typename V::F x) {
  const auto e = exp<V>(-V::abs(x));
  const auto s = e / (e + V::set(2.0f));
  const auto y = s * s;
  const auto half_log = V::fma(polynomial<V>(kAtanhTail, y) * y, s, s);
  return V::fma(V::set(2.0f), half_log, V::select(V::less(V::set(0.0f), x), x, V::set(0.0f)));
}

template <class V>
inline typename V::F relu(typename V::F x) {
  return V::select(V::less(V::set(0.0f), x), x, V::set(0.0f));
}

}  // namespace onw::forms
