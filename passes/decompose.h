// Coarse ops to primitives, one OpenVINO node each: what OpenVINO is given and what the NPU mode of the reference runs.
#pragma once

#include "base/result.h"
#include "graph/program.h"

namespace onw {

struct DecomposeOptions {
  int64_t rows = 1;          // of the static graph: takes the place of S
  int64_t cache_tokens = 0;  // positions of each cache input
};

// The function for a fixed number of rows, in primitives. Effects become inputs and outputs: for each state that is
// read, inputs
// "<state>.k" [heads, cache_tokens, head_dim], "<state>.v" [heads, cache_tokens, value_dim] and "<state>.mask" [rows,
// cache_tokens + rows] (0 where a row may look, a large negative number elsewhere); for each that is written, outputs
// "<state>.k_new" [heads, rows, head_dim] and "<state>.v_new". A row's own K and V stand behind the cache. quantize
// becomes rounding to its codes and back (q8 values are f32 below). Errors: unsupported for ops of later families.
Result<Function> decompose(const Program& program, const Function& function, const DecomposeOptions& options);

}  // namespace onw
