// Which layers of Qwen2 and Qwen3 slide. Published checkpoints have it off.
#pragma once

#include "models/decoder.h"

namespace onw {

// use_sliding_window with layer_types, or layers from max_window_layers on. Errors: bad_format.
inline Result<void> read_qwen_windows(const Config& config, DecoderConfig& c) {
  if (!config.boolean("use_sliding_window", false)) return {};
  const int64_t window = config.integer("sliding_window", 0);
  if (window < 1 || window > INT32_MAX)
    return error(Code::bad_format,
                 "config.json: 'sliding_window' is {}, expected 1 to 2^31 - 1 with use_sliding_window", window);
  const auto kinds = config.strings("layer_types");
  if (!kinds.empty() && static_cast<int64_t>(kinds.size()) != c.layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), c.layers);
  const int64_t first = config.integer("max_window_layers", c.layers);
  for (int64_t i = 0; i < c.layers; ++i)
    c.windows.push_back((kinds.empty() ? i >= first : kinds[static_cast<size_t>(i)] == "sliding_attention") ? window
                                                                                                            : 0);
  return {};
}

}  // namespace onw
