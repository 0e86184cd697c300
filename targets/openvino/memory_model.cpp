#include "targets/openvino/memory_model.h"

#include <algorithm>

#include "graph/ops.h"

namespace onw::openvino {
namespace {

int64_t packed_bytes(const WeightView& view) {
  if (info(view.format).plain()) return view.outputs * view.inputs * 4;
  return static_cast<int64_t>(view.codes.size() + 2 * view.scales.size() + 4 * view.minima.size());
}

}  // namespace

int64_t packed_weight_bytes(const Program& program, const WeightSet& weights) {
  const bool has_head =
      std::ranges::any_of(program.weights, [](const WeightDecl& w) { return w.role == WeightRole::head; });
  int64_t bytes = 0;
  for (const WeightDecl& w : program.weights) {
    const bool looked_up_only = w.role == WeightRole::lookup || (w.role == WeightRole::embedding && has_head);
    if (looked_up_only || w.role == WeightRole::expert) continue;
    if (const auto view = weights.find(w.name)) bytes += packed_bytes(*view);
  }
  return bytes;
}

int64_t inner_row_bytes(const CutFunction& cut) {
  int64_t elements = 0;
  for (const Function& segment : cut.segments)
    for (const Node& n : segment.nodes)
      if (n.op != Op::input && !n.type.shape.empty() && n.type.shape[0] == kRows) elements += n.type.row_elements();
  return elements * 4;
}

WeightBytesByPlace bytes_by_place(const Program& program, const WeightSet& weights) {
  WeightBytesByPlace bytes;
  for (const WeightDecl& w : program.weights)
    if (const auto view = weights.find(w.name); view && w.role != WeightRole::lookup)
      (w.role == WeightRole::expert ? bytes.experts : bytes.graphs) += view->stored_bytes();
  return bytes;
}

}  // namespace onw::openvino
