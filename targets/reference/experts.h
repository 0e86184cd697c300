// Mixtures of experts: routers, and the experts that rows choose.
#pragma once

#include "targets/reference/ops.h"

namespace onw::reference {

// logits [S, E], bias [E]? -> the weights of the k chosen experts of each row, then their ids (both [S, k] in `f`, ids
// ascending). Errors: numerics, naming a row whose logits are not finite.
Result<Tensor> route_rows(const Node& node, const Operands& in, const Context& context);

// x [S, H], route, gate, up [E, I, H], down [E, O, I], biases? -> [S, O]. For each row y = 0; then for each of its
// experts, ids ascending, y = y + weight * (down(gated(gate(x), up(x))) + its bias), product and sum rounded to FP32.
// Where the node has a `group`, what `gated` gives is quantised by it.
Result<Tensor> run_experts(const Node& node, const Operands& in, const Context& context);

}  // namespace onw::reference
