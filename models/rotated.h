// Models that were quantised in a rotated basis: what their products read goes through a Walsh-Hadamard transform
// first, and what their embedding gives goes through its inverse.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// The key of config.json that says so: a list of {"path": "model.layers.0.mlp.up_proj", "block": 1024, "embedding":
// false}, as the checkpoints have it.
inline constexpr std::string_view kRotatedKey = "modules";
// 2^13: wider blocks are in no checkpoint, and this is what was tested.
inline constexpr int64_t kMostRotatedBlock = 8192;

bool is_rotated(const nlohmann::json& config);

// Puts `hadamard` before every product with a weight that the config lists, and its inverse behind the embedding where
// that is listed. Signs become weights "<weight>.signs" [inputs], published as "<path>.signs". Products of one value
// share the transform only where they share the published tensor. Errors: bad_format; unsupported for a block that is
// no power of two up to kMostRotatedBlock, and for modules that the family has no matrix for.
Result<void> rotate_inputs(Program& program, const nlohmann::json& config);

}  // namespace onw
