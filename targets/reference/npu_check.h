// What a model would lose on an NPU, layer by layer.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "targets/weights.h"

namespace onw {

// The steps of one layer, or of what stands before or behind the layers.
struct NpuLayer {
  std::string name;         // "L07"; "inputs", where something is computed before the layers; "head"
  float largest = 0;        // of all values in FP32, masks aside
  int64_t values = 0;       // results of steps
  int64_t overflows = 0;    // of those: beyond FP16 in FP32's arithmetic
  int64_t lost = 0;         // not zero in FP32, but too small for an NPU
  double relative_rms = 0;  // of what the layer hands on: the difference to FP32 over FP32; infinite if not finite
};

// Runs `program` over `tokens` as a prompt in two blocks, the second over the keys and values of the first, as
// primitives with legalize_npu's rewrites, in FP32 and with the NPU's arithmetic, activations unquantised. A layer's
// difference is that of the second block, the head's that of the last token. Errors: those of decompose and of the
// reference; invalid_argument for fewer than two tokens.
Result<std::vector<NpuLayer>> check_npu(const Program& program, const WeightSet& weights,
                                        const std::vector<int32_t>& tokens);

}  // namespace onw
