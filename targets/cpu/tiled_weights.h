// The weights that the CPU's kernels read: every matrix in tiles, merged ones side by side.
#pragma once

#include <vector>

#include "graph/program.h"
#include "targets/weights.h"

namespace onw::cpu {

// Copies the matrices that are in rows into memory, in tiles; the others pass through. For small models and tests: a
// folder that needs it is relaid once into the cache store instead. Errors: missing_tensor, out_of_memory.
Result<WeightSet> tiled_in_memory(const Program& program, WeightSet weights);

// Whether these weights follow each other in codes, scales and minima: what merging needs.
bool adjacent(const WeightSet& weights, const std::vector<std::string>& names);

// A weight of the Program, merged ones as one view over their parts.
Result<WeightView> find_weight(const Program& program, const WeightSet& weights, std::string_view name);

}  // namespace onw::cpu
