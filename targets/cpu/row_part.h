// Some of the rows of a quantised value, where they lie.
#pragma once

#include "kernels/rows.h"

namespace onw::cpu {

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
