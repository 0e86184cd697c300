// The canonical state, the same on every target: one blob a part and head, [position][elements], in the sequence's KV
// format. A window keeps the positions that the next row can still see, in order.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/program.h"

namespace onw {

// "kv.3.k.0" is K of layer 3's head 0; parts: k, v, and for INT8 k_scale, v_scale (F16).
inline std::string state_blob_name(const StateDecl& state, std::string_view part, int64_t head) {
  return fmt::format("{}.{}.{}", state.name, part, head);
}

// The first position that a state of `length` tokens holds.
inline int64_t first_canonical_position(const StateDecl& state, int64_t length) {
  return state.window > 0 ? std::max<int64_t>(0, length + 1 - state.window) : 0;
}

}  // namespace onw
