// What an NPU cannot compute correctly, rewritten so that it can: on primitives, where "FP16 after every step" means
// something. The NPU holds FP16 after every step, has no subnormals, and stops sums of raw codes at 65504.
#pragma once

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// The same function of the same inputs and outputs, by these rules:
//   norms          (RMS, L2, layer norm) divide rows by their largest value and multiply with 16 first, and sum in
//                  groups of at most 128: squares of large rows overflow, those of small rows vanish. eps becomes
//                  (sqrt(eps) * 16 / largest)^2.
//   wide products  of two run-time values, weights of attention with V, in parts of 256 columns: beyond those the
//                  device computes something else.
//   raw codes      a row that meets INT8 or INT4 codes of run time is divided by its largest value, and by what it sums
//   to
//                  where so many codes could sum beyond 65504; the product is multiplied with both afterwards.
//   soft cap       1/cap goes before the product with a weight: after it, blocks of 16 rows come out wrong.
//   masks          are no lower than -32752, so that no score becomes -infinity: a row that sees nothing would be NaN,
//                  and through its V every other row.
// Errors: what result_type says of a shape (a graph that does not verify).
Result<Function> legalize_npu(const Function& function);

}  // namespace onw
