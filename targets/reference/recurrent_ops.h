// The ops with a convolution or delta state.
#pragma once

#include "targets/reference/ops.h"

namespace onw::reference {

Result<Tensor> conv_update(const Node& node, const Operands& in, const Context& context);
Result<Tensor> gated_delta(const Node& node, const Operands& in, const Context& context);

}  // namespace onw::reference
