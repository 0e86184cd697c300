// Logits of a sequence of ids on any target, fed in pieces of any length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "targets/executable.h"

namespace onw::testing {

// [T, vocabulary]: a step per segment on one fresh sequence; `segments` is repeated as often as it takes, the last one
// is cut. Errors: the target's.
Result<std::vector<float>> logits_in_segments(Executable& target, std::span<const int32_t> ids,
                                              std::span<const int64_t> segments);

}  // namespace onw::testing
