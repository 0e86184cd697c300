// Layers of more than one kind: which mixer each has.
#pragma once

#include "models/decoder.h"

namespace onw {

// c.mixers from `kinds`, one a layer: "full_attention", or `other_name`, which means `other`. Errors: bad_format for
// another count, unsupported for another kind.
inline Result<void> read_mixers(const std::vector<std::string>& kinds, std::string_view other_name, Mixer other,
                                DecoderConfig& c) {
  if (static_cast<int64_t>(kinds.size()) != c.layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), c.layers);
  for (const std::string& kind : kinds) {
    if (kind != "full_attention" && kind != other_name)
      return error(Code::unsupported, "config.json: layer_types with '{}' are not supported; full_attention and {} are",
                   kind.substr(0, 40), other_name);
    c.mixers.push_back(kind == other_name ? other : Mixer::attention);
  }
  return {};
}

}  // namespace onw
