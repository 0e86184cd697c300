#include "convert/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "store/safetensors.h"

namespace onw {

Result<Importance> Importance::open(const std::filesystem::path& file) {
  const auto opened = SafetensorsFile::open(file);
  RETURN_IF_ERROR(opened);
  Importance importance;
  importance.file_ = file.string();
  for (const SafeTensor& tensor : opened->tensors()) {
    if (tensor.type != ElementType::f32 || tensor.shape.size() != 1)
      return error(Code::bad_format, "{}: '{}' is not F32 of one dimension; make the file with tools/importance.py",
                   file.string(), tensor.name);
    std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
    std::memcpy(values.data(), opened->bytes(tensor).data(), values.size() * sizeof(float));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x) && x >= 0; }))
      return error(Code::bad_format, "{}: '{}' has a value that is negative or not finite; make the file anew",
                   file.string(), tensor.name);
    // Only ratios count; the largest becomes 1, so that no square leaves FP32.
    const float most = values.empty() ? 0.0f : std::ranges::max(values);
    for (float& x : values) x = most > 0 ? x / most : 1.0f;
    importance.by_weight_.emplace(tensor.name, std::move(values));
  }
  return importance;
}

Result<std::span<const float>> Importance::of(const WeightDecl& weight) const {
  const auto found = by_weight_.find(weight.name);
  if (found == by_weight_.end() || weight.shape.size() != 2) return std::span<const float>();
  if (static_cast<int64_t>(found->second.size()) != weight.shape[1])
    return error(Code::invalid_argument,
                 "{}: '{}' has {} values, the weight has {} inputs; the file is of another model", file_, weight.name,
                 found->second.size(), weight.shape[1]);
  return std::span<const float>(found->second);
}

Result<void> Importance::check_knows(const Program& program) const {
  if (std::ranges::any_of(program.weights, [&](const WeightDecl& w) { return by_weight_.contains(w.name); })) return {};
  return error(Code::invalid_argument, "{}: none of its {} tensors is named after a weight of this model, such as '{}'",
               file_, by_weight_.size(), program.weights.empty() ? "" : program.weights.back().name);
}

}  // namespace onw
