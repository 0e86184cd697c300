// A weight where it lies: in the mapped file, in the cache store or in memory. Nobody owns anything here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/weight_format.h"

namespace onw {

// codes:  4-bit rows U8 [out, in/2], tiles U8 [out/16, in/8, 64]; 8-bit rows I8 [out, in], tiles U8 [out/16, in/4, 64]
// (code + 128);
//         plain rows [out, in], tiles [out/16, in, 16]. `tiles` pad outputs to 16.
// scales, minima: F16, rows [out, groups], tiles [out/16, groups, 16]; a per-channel format has one group.
// Vectors (norms, biases) are plain, layout rows, outputs = their length, inputs = 1.
struct WeightView {
  WeightFormat format = WeightFormat::f32;
  Layout layout = Layout::rows;
  int64_t outputs = 0;
  int64_t inputs = 0;
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> minima;

  // A stack of experts: all of the above is the first's, that of expert e lies e * expert_stride bytes behind it.
  int64_t experts = 0;  // 0: no stack
  int64_t expert_stride = 0;
  WeightView expert(int64_t e) const;

  // Bytes of all parts, those of every expert of a stack.
  int64_t stored_bytes() const;

  int64_t padded_outputs() const { return layout == Layout::tiles ? (outputs + 15) / 16 * 16 : outputs; }
  // Inputs that share a scale, and how many such groups a row has (0 for plain formats).
  int64_t group() const { return info(format).group == 0 ? inputs : info(format).group; }
  int64_t groups() const { return info(format).plain() ? 0 : inputs / group(); }
};

// Bytes that the three parts of such a weight take; parts that the format lacks are 0.
struct WeightBytes {
  int64_t codes = 0;
  int64_t scales = 0;
  int64_t minima = 0;
  int64_t total() const { return codes + scales + minima; }
};
WeightBytes weight_bytes(WeightFormat format, Layout layout, int64_t outputs, int64_t inputs);

}  // namespace onw
