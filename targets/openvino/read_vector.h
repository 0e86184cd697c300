// Sinks of an attention, biases of a router: read once.
#pragma once

#include <string>
#include <vector>

#include "quant/unpack.h"
#include "targets/weights.h"

namespace onw::openvino {

inline Result<std::vector<float>> read_vector(const WeightSet& weights, const std::string& name) {
  const auto view = weights.find(name);
  RETURN_IF_ERROR(view);
  std::vector<float> values(static_cast<size_t>(view->outputs));
  for (int64_t i = 0; i < view->outputs; ++i)
    dequantise_row(*view, i, std::span(values).subspan(static_cast<size_t>(i), 1));
  return values;
}

}  // namespace onw::openvino
