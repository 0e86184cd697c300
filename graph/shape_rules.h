// The type of each op's result from its inputs' types and attributes: what the verifier checks and the builder fills
// in.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace onw {

// What a router chooses from: twice what published models have; kernels keep as many numbers on the stack.
inline constexpr int64_t kMostExperts = 1024;

// Errors: invalid_argument, saying which operand or attribute does not fit. Inputs, weights and constants carry their
// own type.
Result<Type> result_type(Op op, std::span<const Type> inputs, const Attributes& attributes);

}  // namespace onw
