// The names of the canonical state's blobs, the same on every target.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "graph/program.h"

namespace onw {

// One part of one head: "kv.3.k.0" is K of layer 3's head 0, [position][head_dim]; parts: k, v, k_scale, v_scale.
inline std::string state_blob_name(const StateDecl& state, std::string_view part, int64_t head) {
  return fmt::format("{}.{}.{}", state.name, part, head);
}

}  // namespace onw
