#include <algorithm>
#include <cmath>
#include <vector>

#include "base/result.h"
#include "kernels/matmul/matmul.h"
#include "quant/unpack.h"

namespace onw {
namespace {

void store(const MatmulOutput& out, int64_t row, int64_t output, float y) {
  if (out.bias != nullptr) y = y + out.bias[output];
  if (out.residual != nullptr) y = out.residual[row * out.residual_stride + output] + y;
  out.y[row * out.stride + output] = y;
}

// One output of a quantised weight, unpacked.
struct UnpackedRow {
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<float> minima;
  int64_t group;
  int64_t depth;
};

float dot(const QuantizedRows& x, int64_t row, const UnpackedRow& w) {
  float acc = 0;
  for (int64_t k0 = 0; k0 < x.inputs; k0 += w.depth) {
    const int64_t gx = k0 / x.group;
    const int8_t* codes = x.codes + (gx * x.row_stride + row) * x.group + k0 % x.group;
    int32_t sum = 0, code_sum = 0;
    for (int64_t k = 0; k < w.depth; ++k) {
      sum += w.values[k0 + k] * codes[k];
      code_sum += codes[k];
    }
    const float x_scale = x.scales[gx * x.row_stride + row];
    acc = std::fma(static_cast<float>(sum), w.scales[k0 / w.group] * x_scale, acc);
    if (!w.minima.empty()) acc = std::fma(static_cast<float>(code_sum), w.minima[k0 / w.group] * x_scale, acc);
  }
  return acc;
}

}  // namespace

void matmul_reference(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out) {
  CHECK(x.inputs == weight.inputs);
  UnpackedRow w;
  w.values.resize(weight.inputs);
  w.scales.resize(weight.groups());
  w.minima.resize(info(weight.format).minimum ? weight.groups() : 0);
  w.group = weight.group();
  w.depth = std::min<int64_t>(weight.group(), x.group);
  for (int64_t o = blocks.first * 16; o < std::min(blocks.last * 16, weight.outputs); ++o) {
    unpack_row(weight, o, w.values, w.scales, w.minima);
    for (int64_t row = 0; row < x.rows; ++row) store(out, row, o, dot(x, row, w));
  }
}

void matmul_reference(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out) {
  std::vector<float> w(weight.inputs);
  for (int64_t o = blocks.first * 16; o < std::min(blocks.last * 16, weight.outputs); ++o) {
    dequantise_row(weight, o, w);
    for (int64_t row = 0; row < x.rows; ++row) {
      float acc = 0;
      for (int64_t k = 0; k < weight.inputs; ++k) acc = std::fma(x.data[row * x.stride + k], w[k], acc);
      store(out, row, o, acc);
    }
  }
}

}  // namespace onw
