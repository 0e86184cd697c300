// The reference target: an interpreter, one op after another, slow and obvious. It judges the others and is judged by
// transformers.
#pragma once

#include <memory>

#include "graph/program.h"
#include "kernels/isa.h"
#include "targets/executable.h"
#include "targets/weights.h"

namespace onw {

struct ReferenceOptions {
  // generic computes every product by itself; another level takes that level's matmul kernels (the same bits, for long
  // runs).
  Isa isa = Isa::generic;
  int threads = 1;
  int max_step_rows = 512;
  int64_t max_context = 0;  // 0: the model's
};

// Runs `program` as it is: quantised where passes made it so, over a cache of the format that its kv_write names (f32
// without). Errors: missing_tensor for a weight, unsupported for an op of later families, invalid_argument for a graph
// that does not verify.
Result<std::unique_ptr<Executable>> make_reference(Program program, WeightSet weights,
                                                   const ReferenceOptions& options = {});

}  // namespace onw
