// FP32 rows [outputs, inputs] to codes, scales and minima in `rows` layout, format by format as data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "graph/weight_view.h"

namespace onw {

// Where the three parts of a weight are written. Sizes: weight_bytes(format, layout, outputs, inputs).
struct WeightParts {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> minima;
};

// Whether the format's scales are searched, so that what hints.importance says counts.
bool searches_scales(WeightFormat format);

// What is known beside the weights.
struct QuantiseHints {
  // Integer formats without a minimum: a scale below it and not 0 is raised to it; the codes get coarser, by at most
  // half of it per weight.
  float least_scale = 0;
  // Mean squares of the activations that meet the inputs, [inputs] (finite, >= 0), or empty: what search_scale weighs
  // with.
  std::span<const float> importance = {};
};

// Quantises `outputs` rows. Rows do not depend on each other, so a caller may go through a tensor piece by piece.
// Per group (per row for per-channel formats), s = float(F16(scale)), division and rounding (half to even) in FP32:
//   integer        scale = amax / max code, with 4 bits then search_scale's;   code = clamp(round(w / s))
//   q4sg*          the search starts from scale = max(max/7, -min/8)
//   with minimum   m = F16(min), scale = (max - m) / max code;   code = clamp(round((w - m) / s));
//                  with 2 bits both are search_affine's
//   nf4c           scale = amax; code = nearest true NF4 level to w / s, ties to the lower code
//   mxfp4          scale = 2^(floor(log2(amax)) - 2), at least 2^-24; code = nearest value, ties to the lower index
//   iq4g32         scale = +-amax/127, sharpened by least squares; code = nearest level; the candidate with the least
//                  squared error wins
//   plain          each value rounded to nearest even
// A scale that is 0 in F16 gives code 0 (for codebooks the level nearest 0).
// The result is how many scales were raised to hints.least_scale.
// Errors: invalid_argument (a value that is not finite, or a scale beyond F16's 65504:
// the message gives row and group).
Result<int64_t> quantise(WeightFormat format, std::span<const float> weights, int64_t outputs, int64_t inputs,
                         const WeightParts& out, const QuantiseHints& hints = {});

// Takes over codes that another file format already has, without loss. `codes`: one per weight, in the range of the
// format's code (an index for codebooks), [outputs, inputs]; `scales`, `minima`: F16 bits [outputs, groups].
// Errors: unsupported (a plain format); invalid_argument (a code out of range, sizes that do not fit).
Result<void> adopt(WeightFormat format, std::span<const int8_t> codes, std::span<const uint16_t> scales,
                   std::span<const uint16_t> minima, int64_t outputs, int64_t inputs, const WeightParts& out);

}  // namespace onw
