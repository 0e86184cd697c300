// What every graph must satisfy before anything runs or lowers it.
#pragma once

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// Inputs come before their users, every type is what the shape rule gives, weights and states are declared with these
// shapes, ops are of `level` (or of both). The error names the step: "body: L07/q_proj: linear: x has 64 inputs, w is
// [48,96]".
Result<void> verify(const Program& program, Level level = Level::coarse);
Result<void> verify(const Function& function, const Program& program, Level level = Level::coarse);

}  // namespace onw
