// Row operations: what stands between the products. Each is the function of kernels/scalar.h of the same name, bit for
// bit, on every instruction set; none allocates, none touches memory outside the elements it is given.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/rows.h"
#include "kernels/scalar.h"

namespace onw {

struct Norm {
  const float* weight = nullptr;  // [n]; null: none
  const float* bias = nullptr;    // layer_norm only; null: none (always, where there is no weight)
  float eps = 0;
};

// Inputs begin..end - 1 (multiples of out->group) of one row of `out`: a thread's share of it.
struct QuantizedPart {
  const QuantizedRows* out = nullptr;
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// One row at a time, so threads split rows as they like. `out` may be an input. x, gate, up and out hold n floats.
struct RowOps {
  void (*rms_norm)(const Norm& norm, const float* x, int64_t n, float* out);
  void (*layer_norm)(const Norm& norm, const float* x, int64_t n, float* out);  // needs a weight
  void (*l2_norm)(float eps, const float* x, int64_t n, float* out);
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);
  void (*activate)(scalar::Activation activation, const float* x, int64_t n, float* out);
  void (*gated)(const scalar::Gate& kind, const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*multiply)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(float by, const float* x, int64_t n, float* out);
  void (*soft_cap)(float cap, const float* x, int64_t n, float* out);
  void (*softmax)(const float* x, int64_t n, float* out);
  float (*sum)(const float* x, int64_t n);
  float (*dot)(const float* a, const float* b, int64_t n);

  // x, gate and up point to input `begin` of the part. Codes, scales and sums of the part are written.
  void (*quantise)(const float* x, const QuantizedPart& part);
  void (*gated_quantise)(const scalar::Gate& kind, const float* gate, const float* up, const QuantizedPart& part);
  // A whole row: rms_norm, then quantise; x holds out.inputs floats.
  void (*rms_norm_quantise)(const Norm& norm, const float* x, const QuantizedRows& out, int64_t row);
};

struct RowOpsRow {
  std::string_view name;
  Isa needs;
  const RowOps* ops;
};

// The table of kernels/rowops/kernels.inc, best last.
std::span<const RowOpsRow> row_ops_table();
// The best that runs at `level`.
const RowOps& row_ops(Isa level);

}  // namespace onw
