// Runs one function of a Program over the rows of a step.
#pragma once

#include <map>
#include <string>

#include "targets/reference/ops.h"

namespace onw::reference {

using Inputs = std::map<std::string, Tensor, std::less<>>;

// The named outputs. `cancel` is polled between ops; with `check_finite` the first op whose result is not finite ends
// the run with a numerics error that names it.
Result<Inputs> run_function(const Function& function, Inputs inputs, const Context& context, const CancelToken& cancel,
                            bool check_finite);

bool all_finite(const Tensor& t);

}  // namespace onw::reference
