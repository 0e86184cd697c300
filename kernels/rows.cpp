#include "kernels/rows.h"

#include "base/checked.h"
#include "base/result.h"

namespace onw {
namespace {

struct Parts {
  int64_t codes = 0;
  int64_t scales = 0;
  int64_t sums = 0;
};

Parts part_bytes(int64_t rows, int64_t inputs, int32_t group) {
  CHECK(rows > 0 && (group == 32 || group == 64 || group == 128) && inputs > 0 && inputs % group == 0);
  const int64_t stride = quantized_row_stride(rows);
  return {round_up(stride * inputs, 64), round_up(stride * (inputs / group) * 4, 64),
          round_up(stride * (inputs / 32) * 4, 64)};
}

}  // namespace

int64_t quantized_row_stride(int64_t rows) {
  if (rows <= 1) return 1;
  if (rows <= 4) return 4;
  if (rows <= 8) return 8;
  return round_up(rows, 16);
}

size_t quantized_rows_bytes(int64_t rows, int64_t inputs, int32_t group) {
  const Parts parts = part_bytes(rows, inputs, group);
  return static_cast<size_t>(parts.codes + parts.scales + parts.sums);
}

QuantizedRows place_quantized_rows(std::byte* memory, int64_t rows, int64_t inputs, int32_t group) {
  CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
  const Parts parts = part_bytes(rows, inputs, group);
  QuantizedRows placed{rows, inputs, quantized_row_stride(rows), group};
  placed.codes = reinterpret_cast<int8_t*>(memory);
  placed.scales = reinterpret_cast<float*>(memory + parts.codes);
  placed.sums = reinterpret_cast<int32_t*>(memory + parts.codes + parts.scales);
  return placed;
}

}  // namespace onw
