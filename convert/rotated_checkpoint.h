// What checkpoints in a rotated basis (models/rotated.h) say of themselves, checked, and put as a family reads it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "convert/checkpoint.h"

namespace onw {

inline constexpr std::string_view kSigns = ".signs";

// Where the config is that of a rotated checkpoint (model_type "prism_hadamard_..."), it becomes its base model's, its
// list of modules kept. Errors: unsupported for another schema, layout, transform, or a rotation that comes without
// that list; bad_format.
Result<void> take_rotated_config(const HfCheckpoint& checkpoint, nlohmann::json& config);

// MLX saves norms that are published as an offset from 1 with the 1 in them; the kernels of convolutions, which it
// saves as [channels, taps, 1], tell.
void take_shifted_norms(const HfCheckpoint& checkpoint, nlohmann::json& config);

// Each sign is 1 or -1. Errors: bad_format, naming the place; unsupported for a type that is no F32, F16 or BF16.
Result<void> check_signs(const HfCheckpoint::Found& found);

}  // namespace onw
