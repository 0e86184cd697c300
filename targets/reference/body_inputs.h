// What the host gives to a model's body for the rows of a step.
#pragma once

#include "targets/reference/interpreter.h"

namespace onw::reference {

// "x" [rows, hidden] from the embedding table (or a row's own embedding), the further lookups, and for each rotary
// table "<name>.cos" and
// "<name>.sin" [rows, half]. Errors: missing_tensor without a table.
Result<Inputs> body_inputs(const Program& program, const WeightSet& weights, std::span<const Row> rows);

}  // namespace onw::reference
