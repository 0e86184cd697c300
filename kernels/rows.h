// Rows of activations as INT8: what the quantise kernels write and the matmul kernels read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onw {

// Row r, input k, g = k / group:  x ~ codes[(g * row_stride + r) * group + k % group] * scales[g * row_stride + r].
// Group-major: all rows of one group lie together, so a weight block reads its activations in one run (row-major would
// put the rows of a wide layer in one set of the L1 cache). Nobody owns anything here.
//
// codes  [inputs/group][row_stride][group]   within [-127, 127]
// scales [inputs/group][row_stride]          amax / 127 of the row's group (docs/arithmetic.md: Quantise)
// sums   [inputs/32][row_stride]             sum of the codes of each 32 inputs, whatever the group: a weight's group
// may be
//                                            smaller than the activation's, and its offset or minimum needs its own
//                                            sums
// Rows from `rows` to `row_stride` are padding: they may hold anything, and nothing that is computed from them is kept.
struct QuantizedRows {
  int64_t rows = 0;
  int64_t inputs = 0;       // a multiple of group
  int64_t row_stride = 0;   // >= rows: quantized_row_stride(rows)
  int32_t group = 0;        // 32, 64 or 128
  int8_t* codes = nullptr;  // aligned to 64 bytes, as are the others
  float* scales = nullptr;
  int32_t* sums = nullptr;
};

// Rows that the buffers hold for `rows` rows: 1, 4, 8 or a multiple of 16, so that AMX reads whole tiles of rows.
int64_t quantized_row_stride(int64_t rows);

// Bytes for `rows` rows: a multiple of 64. The same for fewer rows or less.
size_t quantized_rows_bytes(int64_t rows, int64_t inputs, int32_t group);

// Lays the three parts out in `memory` (aligned to 64 bytes, quantized_rows_bytes long). Fills nothing.
QuantizedRows place_quantized_rows(std::byte* memory, int64_t rows, int64_t inputs, int32_t group);

}  // namespace onw
