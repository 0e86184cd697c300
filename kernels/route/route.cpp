#include "kernels/route/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/result.h"
#include "graph/shape_rules.h"
#include "kernels/scalar.h"

namespace onw {
namespace {

constexpr auto kMost = static_cast<size_t>(kMostExperts);
constexpr std::array<std::string_view, 3> kNames = {"softmax", "softmax_chosen", "sigmoid"};

// Ids of the largest of `by`, ascending; of equal ones the lower id.
void choose(std::span<const float> by, std::span<int32_t> ids) {
  size_t count = 0;  // ids[0, count) in order of size
  for (size_t e = 0; e < by.size(); ++e) {
    if (count == ids.size() && by[e] <= by[static_cast<size_t>(ids[count - 1])]) continue;
    size_t at = count < ids.size() ? count++ : count - 1;
    for (; at > 0 && by[static_cast<size_t>(ids[at - 1])] < by[e]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
  std::ranges::sort(ids);
}

bool all_finite(std::span<const float> x) {
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

}  // namespace

std::optional<RouteKind> route_kind(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<RouteKind>(found - kNames.begin());
}

bool route(const RouteForm& form, std::span<const float> logits, std::span<int32_t> ids, std::span<float> weights) {
  const size_t n = logits.size();
  CHECK(n <= kMost && !ids.empty() && ids.size() <= n && weights.size() == ids.size());
  std::array<float, kMost> score_memory, order_memory;
  const std::span scores(score_memory.data(), n);
  std::span<const float> order = logits;  // what is chosen by
  bool finite = all_finite(logits);
  if (finite && form.kind == RouteKind::softmax) scalar::softmax(logits, scores.data());
  if (finite && form.kind == RouteKind::sigmoid) std::ranges::transform(logits, scores.begin(), scalar::sigmoid);
  if (finite && form.bias != nullptr) {
    const std::span<const float> before = form.kind == RouteKind::softmax_chosen ? logits : scores;
    for (size_t e = 0; e < n; ++e) order_memory[e] = before[e] + form.bias[e];
    order = std::span(order_memory.data(), n);
    finite = all_finite(order);
  }
  if (!finite) {
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::fill(weights, std::numeric_limits<float>::quiet_NaN());
    return false;
  }
  choose(order, ids);
  const std::span<const float> from = form.kind == RouteKind::softmax_chosen ? logits : scores;
  for (size_t i = 0; i < ids.size(); ++i) weights[i] = from[static_cast<size_t>(ids[i])];
  if (form.kind == RouteKind::softmax_chosen) scalar::softmax(weights, weights.data());
  if (form.renormalise) {
    const float sum = scalar::sum(weights) + form.eps;
    for (float& w : weights) w /= sum;
  }
  if (form.scale != 1)
    for (float& w : weights) w *= form.scale;
  return true;
}

}  // namespace onw
