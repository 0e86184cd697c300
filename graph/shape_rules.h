// The type of each op's result from its inputs' types and attributes: what the verifier checks and the builder fills
// in.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace onw {

// Errors: invalid_argument, saying which operand or attribute does not fit. Inputs, weights and constants carry their
// own type.
Result<Type> result_type(Op op, std::span<const Type> inputs, const Attributes& attributes);

}  // namespace onw
