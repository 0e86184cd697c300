#include "cli/layer_errors.h"

#include <algorithm>
#include <cmath>

namespace onw::cli {

void LayerTap::seen(const SeenOp& op) {
  const auto slash = op.label.find('/');
  if (slash == std::string_view::npos || op.values == nullptr || op.width != hidden_) return;
  const auto layer = op.label.substr(0, slash);
  if (layers_.empty() || layers_.back().name != layer) layers_.push_back({std::string(layer), {}});
  auto& values = layers_.back().values;
  values.clear();
  for (int64_t r = 0; r < op.rows; ++r)
    values.insert(values.end(), op.values + r * op.stride, op.values + r * op.stride + op.width);
}

Result<void> LayerErrors::add(const LayerTap& ours, const LayerTap& reference) {
  if (ours.layers().size() != reference.layers().size())
    return error(Code::internal, "the targets show {} and {} layers", ours.layers().size(), reference.layers().size());
  sums_.resize(ours.layers().size());
  for (size_t l = 0; l < sums_.size(); ++l) {
    const auto &a = ours.layers()[l], &b = reference.layers()[l];
    if (a.name != b.name || a.values.size() != b.values.size())
      return error(Code::internal, "the targets' layers differ: '{}' with {} values, '{}' with {}", a.name,
                   a.values.size(), b.name, b.values.size());
    sums_[l].layer = a.name;
    for (size_t i = 0; i < a.values.size(); ++i) {
      const double d = static_cast<double>(a.values[i]) - b.values[i];
      sums_[l].difference += d * d;
      sums_[l].reference += static_cast<double>(b.values[i]) * b.values[i];
    }
  }
  return {};
}

std::vector<LayerError> LayerErrors::worst(size_t count) const {
  std::vector<LayerError> all;
  for (const auto& sum : sums_)
    all.push_back({sum.layer, sum.difference == 0 ? 0 : std::sqrt(sum.difference / sum.reference)});
  std::ranges::sort(all, std::ranges::greater(), &LayerError::relative_rms);
  all.resize(std::min(all.size(), count));
  return all;
}

}  // namespace onw::cli
