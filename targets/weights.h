// How a target finds its weights: by plain name, where they lie.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/weight_view.h"

namespace onw {

// A mapped file that views of weights point into.
struct MappedWeights {
  std::filesystem::path path;
  std::span<const std::byte> bytes;
};

struct WeightSet {
  // Errors: missing_tensor. The view is valid as long as `owner` lives.
  std::function<Result<WeightView>(std::string_view name)> find;
  std::shared_ptr<const void> owner;
  // The files behind the views, for who maps them in its own way; none for weights in memory.
  std::vector<MappedWeights> files = {};
  std::vector<MappedWeights> expert_files = {};  // of records of experts, which are no constants of any graph
};

}  // namespace onw
