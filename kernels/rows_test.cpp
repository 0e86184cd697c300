#include "kernels/rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace onw {
namespace {

TEST(QuantizedRows, strides_let_amx_read_whole_tiles) {
  EXPECT_EQ(quantized_row_stride(1), 1);
  EXPECT_EQ(quantized_row_stride(2), 4);
  EXPECT_EQ(quantized_row_stride(5), 8);
  EXPECT_EQ(quantized_row_stride(9), 16);
  EXPECT_EQ(quantized_row_stride(33), 48);
}

TEST(QuantizedRows, parts_are_aligned_and_fill_the_memory) {
  alignas(64) static std::byte memory[1 << 16];
  for (const int64_t rows : {1, 3, 17})
    for (const int32_t group : {32, 64, 128}) {
      const QuantizedRows x = place_quantized_rows(memory, rows, 384, group);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(x.scales) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(x.sums) % 64, 0u);
      const auto* end = reinterpret_cast<std::byte*>(x.sums + x.row_stride * (384 / 32));
      EXPECT_LE(end, memory + quantized_rows_bytes(rows, 384, group));
      EXPECT_GT(end + 64, memory + quantized_rows_bytes(rows, 384, group));
    }
}

TEST(QuantizedRows, fewer_rows_never_need_more_memory) {
  for (int64_t rows = 2; rows < 70; ++rows)
    EXPECT_GE(quantized_rows_bytes(rows, 96, 32), quantized_rows_bytes(rows - 1, 96, 32));
}

}  // namespace
}  // namespace onw
