// A weight of either layout back to integers and scales, or to FP32. The slow, obvious way: reference target, error
// figures, the lookup of an embedding row. Kernels read tiles themselves.
#pragma once

#include <cstdint>
#include <span>

#include "graph/weight_view.h"

namespace onw {

// One output row of a quantised weight.
//   values [inputs]: the integer that multiplies the activation (two's complement code, unsigned code where the format
//                    has a minimum, level of the codebook)
//   scales [groups]: float(F16 scale) * step (quant/codebook.h): w = scale * value (+ minimum)
//   minima [groups]: float(F16 minimum); not written where the format has none (may be empty)
void unpack_row(const WeightView& weight, int64_t output, std::span<int8_t> values, std::span<float> scales,
                std::span<float> minima);

// One output row as FP32 [inputs]: scale * value, then + minimum, each rounded; plain weights exactly.
void dequantise_row(const WeightView& weight, int64_t output, std::span<float> out);

// One output row of an nf4c weight with true NF4 levels: scale * level. What an NPU computes.
void dequantise_row_true_nf4(const WeightView& weight, int64_t output, std::span<float> out);

}  // namespace onw
