// The gated delta rule and the short causal convolution: recurrent states in chunks of 16 absolute positions. A state
// is what it was at the last chunk's edge, and a log of the rows since; it moves only at edges. So a row's result does
// not depend on how rows were cut into steps, rows at the end can be taken back, and a row that is no edge only reads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/isa.h"

namespace onw {

constexpr int kDeltaChunk = 16;

// Decays below e^-88, which is 0 in FP32, count as that: running sums of them stay small, and their differences exact.
constexpr float kLeastLogDecay = -88;

// What decayed below e^-44 (8e-20) counts as gone: beside anything newer it is, and numbers below FP32's normal ones,
// which products of it would be, take a hundred times as long.
constexpr float kLeastExponent = -44;

// Rows [first, last) of one value head within one chunk. Lists are by slot, a row's position mod 16. The rows before
// `first` are in the log. Arithmetic, for the row in slot t (S: the state at the chunk's edge; e^x: 0 below
// kLeastExponent):
//   c_t = c_{t-1} + max(g_t, kLeastLogDecay), c_{-1} = 0
//   m, n: for i ascending fma(S[i], k_t[i], m), fma(S[i], q_t[i], n)
//   u_t = beta_t * a, a = fma(-e^{c_t}, m, v_t), then for j < t ascending fma(-(e^{c_t-c_j} * dot(k_j, k_t)), u_j, a)
//   out_t = e^{c_t} * n, then for j <= t ascending fma(e^{c_t-c_j} * dot(k_j, q_t), u_j, out_t)
// and, where last is 16:
//   next_edge[i] = e^{c_15} * S[i], then for j ascending fma(e^{c_15-c_j} * k_j[i], u_j, next_edge[i])
// with exp, dot and the order of sums of kernels/scalar.h. This is the recurrence S <- e^g S; S <- S + k (beta (v -
// S'k))'; out = S'q, unrolled within the chunk (arXiv 2412.06464).
struct DeltaChunk {
  int64_t key_dim = 0, value_dim = 0;
  int first = 0, last = 0;
  const float* edge = nullptr;       // S [key_dim, value_dim]
  float* next_edge = nullptr;        // where S at the chunk's end goes; may be `edge`; used where last is 16
  const float* k[kDeltaChunk] = {};  // [key_dim], from slot 0 on
  const float* q[kDeltaChunk] = {};  // [key_dim], from `first` on, as all below
  const float* v[kDeltaChunk] = {};  // [value_dim]
  float* out[kDeltaChunk] = {};      // [value_dim]
  float g[kDeltaChunk] = {};         // the logarithm of the decay
  float beta[kDeltaChunk] = {};
  float* u = nullptr;  // the log: slot s at u + s * log_stride [value_dim], c + s * log_stride
  float* c = nullptr;
  int64_t log_stride = 0;
};

// One row of the convolution, channels [begin, end): y = bias, or 0; for j ascending y = fma(w[j], x[j], y).
struct ConvRow {
  const float* const* x = nullptr;  // [kernel] rows, the oldest first
  const float* w = nullptr;         // [kernel, channels]
  const float* bias = nullptr;      // null: none
  int64_t kernel = 0, channels = 0;
  int64_t begin = 0, end = 0;
  float* y = nullptr;
};

struct DeltaOps {
  void (*chunk)(const DeltaChunk& chunk);
  void (*conv)(const ConvRow& row);
};

struct DeltaOpsRow {
  std::string_view name;
  Isa needs;
  const DeltaOps* ops;
};

// The table of kernels/delta/kernels.inc, best last: the same bits in each. Nothing beyond the elements given is
// touched.
std::span<const DeltaOpsRow> delta_ops_table();
// The best that runs at `level`.
const DeltaOps& delta_ops(Isa level);

}  // namespace onw
