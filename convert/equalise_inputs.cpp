#include "convert/equalise_inputs.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"

namespace onw {
namespace {

constexpr int kMost = 8;
constexpr double kStrength = 0.5;

}  // namespace

std::vector<NormReaders> norm_readers(const Program& program) {
  const Function* body = program.function("body");
  if (body == nullptr) return {};
  std::vector<NormReaders> all;
  for (size_t i = 0; i < body->nodes.size(); ++i) {
    const Node& norm = body->nodes[i];
    if (norm.op != Op::rms_norm || norm.inputs.size() != 2) continue;
    const auto is_norm = [i](Value v) { return static_cast<size_t>(v.id) == i; };
    NormReaders found{.norm = body->node(norm.inputs[1]).label};
    bool products_only = std::ranges::none_of(body->outputs, [&](const Output& o) { return is_norm(o.value); });
    for (const Node& reader : body->nodes) {
      if (std::ranges::none_of(reader.inputs, is_norm)) continue;
      products_only = products_only && reader.op == Op::linear && is_norm(reader.inputs[0]);
      if (products_only) found.readers.push_back(body->node(reader.inputs[1]).label);
    }
    if (products_only && !found.readers.empty()) all.push_back(std::move(found));
  }
  return all;
}

std::vector<int8_t> input_exponents(std::span<const float> mean_squares) {
  if (mean_squares.empty()) return {};
  std::vector<float> sorted(mean_squares.begin(), mean_squares.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  if (*middle <= 0) return {};
  std::vector<int8_t> exponents;
  for (const float square : mean_squares) {
    // Of the size, which is the root of the square.
    const double e = square > 0 ? kStrength * 0.5 * std::log2(static_cast<double>(square) / *middle) : -kMost;
    exponents.push_back(static_cast<int8_t>(std::clamp<double>(std::nearbyint(e), -kMost, kMost)));
  }
  const bool changes = std::ranges::any_of(exponents, [](int8_t e) { return e != 0; });
  return changes ? exponents : std::vector<int8_t>();
}

}  // namespace onw
