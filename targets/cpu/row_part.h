// How rows and outputs of gated products are cut into tasks, and some of the rows of a quantised value, where they lie.
#pragma once

#include "kernels/rows.h"

namespace onw::cpu {

// How the products of gate and up, and what follows them, are cut into tasks.
inline constexpr int64_t kBlockRows = 128;
inline constexpr int64_t kBlockOutputs = 128;         // a multiple of every group
inline constexpr int64_t kFewRows = 16;               // reading weights is the work: smaller tasks share it better
inline constexpr int64_t kFewRowsOutputs = 32;        // at least
inline constexpr int64_t kFewRowsMostOutputs = 1024;  // of experts, in one piece
inline constexpr int64_t kThreadFloats = kBlockRows * 2 * kBlockOutputs;
static_assert(kFewRows * 2 * kFewRowsMostOutputs <= kThreadFloats);

// Rows [first, first + rows).
inline QuantizedRows row_part(const QuantizedRows& all, int64_t first, int64_t rows) {
  QuantizedRows part = all;
  part.rows = rows;
  part.codes += first * all.group;
  part.scales += first;
  part.sums += first;
  return part;
}

}  // namespace onw::cpu
