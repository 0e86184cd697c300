// The gated delta rule where numbers below 6e-5 are lost, as on an NPU: what its states and results hold is small.
#pragma once

#include "graph/program.h"

namespace onw {

// A delta state, and the log's u, is so many times what it says where graphs hold it.
constexpr float kDeltaStateScale = 32;

// Per head, results of the rule are 1e-3 to 2e-2, and states as small. Both are multiplied, by powers of two, so
// without an error of their own: v by 32, which makes the state 32 times what it was, and q by 32, which makes the
// result 1024 times. A norm behind it has 1024^2 times its eps, and so gives what it gave; anything else takes the
// result divided by 1024. 1024 with q alone would leave the states as they are, with v alone would leave them 64 before
// they overflow.
Function delta_scales(const Function& function);

}  // namespace onw
