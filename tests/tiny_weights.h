// A tiny model's weights as a target takes them, without a converter between: FP32, folded as the Program asks.
#pragma once

#include "graph/program.h"
#include "targets/weights.h"
#include "tests/golden.h"
#include "tests/tiny_model.h"

namespace onw::testing {

// Errors: missing_tensor for a weight whose published names are not in the golden's list.
Result<WeightSet> tiny_weights(const Golden& golden, const Program& program, const TinyChange& change = {});

}  // namespace onw::testing
