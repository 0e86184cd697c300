// The ops of both levels and the primitives: tensor arithmetic with NumPy's broadcasting.
#pragma once

#include "targets/reference/ops.h"

namespace onw::reference {

// Errors: unsupported for a coarse op that no family so far needs.
Result<Tensor> evaluate_primitive(const Node& node, const Operands& in, const Context& context);

}  // namespace onw::reference
