// The scalar kernels: the reference that every other is compared with, and the fallback of a CPU without AVX2.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/matmul/functions.h"

namespace onw::matmul_kernels {
namespace {

constexpr int kMaxDepth = 128;

// values[k * 16 + o] of one block and group of 2-bit codes: four quads in a line.
void decode_twos(const Call& c, int64_t block, int64_t g, int16_t* values) {
  const uint8_t* line = c.codes + (block * c.inputs + g * c.depth) * 4;
  for (int64_t k = 0; k < c.depth; k += 16, line += 64)
    for (int64_t o = 0; o < 16; ++o)
      for (int64_t i = 0; i < 16; ++i)
        values[(k + i) * 16 + o] = static_cast<int16_t>(line[o * 4 + i % 4] >> (i / 4 * 2) & 3);
}

// The same of all codes.
void decode(const Call& c, int64_t block, int64_t g, int16_t* values) {
  if (c.kind == Codes::twos) return decode_twos(c, block, g, values);
  const bool bytes = c.kind == Codes::bytes;
  const int64_t line_inputs = bytes ? 4 : 8;
  const uint8_t* line = c.codes + (block * c.inputs + g * c.depth) * 64 / line_inputs;
  for (int64_t k = 0; k < c.depth; k += line_inputs, line += 64, values += line_inputs * 16)
    for (int64_t o = 0; o < 16; ++o)
      for (int64_t i = 0; i < 4; ++i) {
        const uint8_t code = line[o * 4 + i];
        values[i * 16 + o] = static_cast<int16_t>(bytes ? code - c.offset : c.values[code & 15]);
        if (!bytes) values[(i + 4) * 16 + o] = c.values[code >> 4];
      }
}

void store(const Call& c, int64_t row, int64_t block, const float* acc) {
  for (int64_t o = block * 16; o < least(c.outputs, block * 16 + 16); ++o) {
    float y = acc[o % 16];
    if (c.bias != nullptr) y = y + c.bias[o];
    if (c.residual != nullptr) y = c.residual[row * c.residual_stride + o] + y;
    c.y[row * c.y_stride + o] = y;
  }
}

// One group of one row for 16 outputs.
void add_group(const Call& c, const Group& g, int64_t block, int64_t row, const int16_t* values, float* acc) {
  int32_t sum[16] = {};
  const int8_t* x = g.x + (row << c.x_shift);
  for (int64_t k = 0; k < c.depth; ++k) {
    const int16_t xk = x[k];
    for (int64_t o = 0; o < 16; ++o) sum[o] += values[k * 16 + o] * xk;
  }
  const float x_scale = g.x_scales[row];
  const auto x_sum = static_cast<float>(code_sum(c, g, row));
  const int64_t at = (block * c.weight_groups + g.scale) * 16;
  for (int64_t o = 0; o < 16; ++o) {
    const float scale = half_to_float(c.scales[at + o]) * c.step;
    acc[o] = std::fma(static_cast<float>(sum[o]), scale * x_scale, acc[o]);
    if (c.minima != nullptr) acc[o] = std::fma(x_sum, half_to_float(c.minima[at + o]) * x_scale, acc[o]);
  }
}

constexpr int64_t kRowChunk = 32;

float plain(const Call& c, int64_t at) {
  if (c.kind == Codes::f32) {
    float value;
    std::memcpy(&value, c.codes + at * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, c.codes + at * 2, 2);
  return c.kind == Codes::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

void generic(const Call& c) {
  int16_t values[kMaxDepth * 16];
  float acc[kRowChunk][16];
  for (int64_t block = c.first_block; block < c.last_block; ++block)
    for (int64_t r0 = 0; r0 < c.rows; r0 += kRowChunk) {
      const int64_t r1 = least(c.rows, r0 + kRowChunk);
      std::memset(acc, 0, sizeof acc);
      for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
        decode(c, block, g, values);
        const Group group = group_at(c, g);
        for (int64_t r = r0; r < r1; ++r) add_group(c, group, block, r, values, acc[r - r0]);
      }
      for (int64_t r = r0; r < r1; ++r) store(c, r, block, acc[r - r0]);
    }
}

void plain_generic(const Call& c) {
  for (int64_t block = c.first_block; block < c.last_block; ++block)
    for (int64_t row = 0; row < c.rows; ++row) {
      float acc[16] = {};
      for (int64_t k = 0; k < c.inputs; ++k) {
        const float x = c.x_plain[row * c.x_plain_stride + k];
        for (int64_t o = 0; o < 16; ++o) acc[o] = std::fma(x, plain(c, (block * c.inputs + k) * 16 + o), acc[o]);
      }
      store(c, row, block, acc);
    }
}

}  // namespace onw::matmul_kernels
