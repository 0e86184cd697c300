// Sizes that come from files go through these: nothing wraps, nothing is negative by accident.
#pragma once

#include <cstdint>
#include <optional>

namespace onw {

template <class T>
std::optional<T> checked_add(T a, T b) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <class T>
std::optional<T> checked_mul(T a, T b) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// n rounded up to a multiple of `unit` (> 0); empty where that overflows.
template <class T>
std::optional<T> checked_align(T n, T unit) {
  const auto padded = checked_add<T>(n, unit - 1);
  if (!padded) return std::nullopt;
  return *padded / unit * unit;
}

// For sizes that are ours, and so cannot overflow.
constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

}  // namespace onw
