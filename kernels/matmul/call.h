// What a matmul kernel is given: plain pointers and numbers, because the files with wide instructions must not
// instantiate anything that the linker could share (STYLE: no weak symbols).
#pragma once

#include <cstdint>

#define ONW_ALWAYS_INLINE static inline __attribute__((always_inline))

namespace onw::matmul_kernels {

enum class Codes : uint8_t {
  nibbles,  // 4-bit integers: value = nibble - offset
  levels,   // 4-bit indices into 16 levels
  bytes,    // 8-bit integers: value = byte - offset
  twos,     // 2-bit unsigned integers, four lines in one; always with a minimum
  f32,
  f16,
  bf16,
};

struct Call {
  Codes kind;

  // Activations: QuantizedRows for codes, FP32 rows for plain weights.
  int64_t rows;
  int64_t row_stride;
  const int8_t* x;
  const float* x_scales;
  const int32_t* x_sums;
  int32_t x_shift;  // log2 of the activation's group
  const float* x_plain;
  int64_t x_plain_stride;

  // Weights in tiles.
  const uint8_t* codes;
  const uint16_t* scales;
  const uint16_t* minima;  // null where the format has none
  int64_t inputs;
  int64_t outputs;
  int64_t weight_groups;
  int32_t w_shift;    // log2 of the weight's group; 62 for per-channel scales
  int32_t depth;      // inputs of one INT32 sum: the smaller of the two groups
  int32_t offset;     // what a stored code has too much: 8, 128 or 0
  float step;         // folded into the scale
  int8_t values[16];  // by stored nibble

  // Result.
  int64_t first_block;
  int64_t last_block;
  float* y;
  int64_t y_stride;
  const float* bias;
  const float* residual;
  int64_t residual_stride;
};

using Kernel = void (*)(const Call&);

// The inputs of one INT32 sum.
struct Group {
  const int8_t* x;        // row r at x + r << x_shift
  const float* x_scales;  // [row_stride]
  const int32_t* x_sums;  // [depth / 32][row_stride]
  int64_t scale;          // of block b: scales + (b * weight_groups + scale) * 16
};

ONW_ALWAYS_INLINE Group group_at(const Call& c, int64_t g) {
  const int64_t k = g * c.depth;
  const int64_t gx = k >> c.x_shift;
  Group at;
  at.x = c.x + (gx * c.row_stride << c.x_shift) + (k & ((int64_t{1} << c.x_shift) - 1));
  at.x_scales = c.x_scales + gx * c.row_stride;
  at.x_sums = c.x_sums + (k >> 5) * c.row_stride;
  at.scale = k >> c.w_shift;
  return at;
}

// Sum of the codes of one row over the group. Unsigned, because padding rows hold anything. No loop: the compiler would
// make a long one of it.
ONW_ALWAYS_INLINE int32_t code_sum(const Call& c, const Group& g, int64_t row) {
  const int32_t* s = g.x_sums + row;
  const auto part = [s, &c](int i) { return static_cast<uint32_t>(s[i * c.row_stride]); };
  uint32_t sum = part(0);
  if (c.depth > 32) sum += part(1);
  if (c.depth > 64) sum += part(2) + part(3);
  return static_cast<int32_t>(sum);
}

// What the sums of a row start from, so that stored codes may have `offset` too much.
ONW_ALWAYS_INLINE int32_t start_sum(const Call& c, const Group& g, int64_t row, int32_t offset) {
  return static_cast<int32_t>(0u - static_cast<uint32_t>(offset) * static_cast<uint32_t>(code_sum(c, g, row)));
}

// Of a block that comes later, or of none: behind the last one lies something else, and nothing is read.
ONW_ALWAYS_INLINE void prefetch_scales(const Call& c, const Group& g, int64_t block) {
  __builtin_prefetch(c.scales + (block * c.weight_groups + g.scale) * 16, 0, 3);
}

ONW_ALWAYS_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace onw::matmul_kernels
