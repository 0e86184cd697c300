// How a target finds its weights: by plain name, where they lie.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "graph/weight_view.h"

namespace onw {

struct WeightSet {
  // Errors: missing_tensor. The view is valid as long as `owner` lives.
  std::function<Result<WeightView>(std::string_view name)> find;
  std::shared_ptr<const void> owner;
};

}  // namespace onw
