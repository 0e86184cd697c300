#include "targets/reference/interpreter.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "graph/ops.h"
#include "targets/op_observer.h"
#include "targets/reference/npu.h"

namespace onw::reference {
namespace {

std::vector<size_t> last_reads(const Function& f) {
  std::vector<size_t> last(f.nodes.size());
  for (size_t i = 0; i < f.nodes.size(); ++i)
    for (const Value v : f.nodes[i].inputs) last[static_cast<size_t>(v.id)] = i;
  for (const Output& o : f.outputs) last[static_cast<size_t>(o.value.id)] = f.nodes.size();
  return last;
}

Result<Tensor> run_node(const Function& f, size_t i, std::vector<Tensor>& values, Inputs& inputs, const Context& c) {
  const Node& n = f.nodes[i];
  if (n.op == Op::input) {
    const auto found = inputs.find(n.label);
    if (found == inputs.end()) return error(Code::internal, "{}: input '{}' was not given", f.name, n.label);
    int64_t wanted = 1;
    for (const int64_t d : n.type.shape) wanted *= d == kRows ? c.rows : d;
    if (found->second.elements() != wanted)
      return error(Code::internal, "{}: input '{}' has {} values, the graph takes {} for {} rows", f.name, n.label,
                   found->second.elements(), wanted, c.rows);
    return std::move(found->second);
  }
  if (n.op == Op::constant) return Tensor{.type = n.type, .f = n.constant};
  std::vector<const Tensor*> operands;
  std::vector<std::string_view> names;
  for (const Value v : n.inputs) {
    const bool weight = f.node(v).op == Op::weight;
    operands.push_back(weight ? nullptr : &values[static_cast<size_t>(v.id)]);
    names.push_back(weight ? std::string_view(f.node(v).label) : "");
  }
  if (c.npu && info(n.op).level == Level::coarse)
    return error(Code::invalid_argument, "{}: NPU mode runs primitives; '{}' must be decomposed first", n.label,
                 name(n.op));
  return evaluate(n, {operands, names}, c);
}

// What the NPU makes of the exact result of node n.
void to_npu(const Function& f, const Node& n, Tensor& value) {
  if (sums_raw_codes(f, n)) npu_saturate(value);
  npu_spoil(f, n, value);
  npu_round(value);
}

}  // namespace

namespace {

using Clock = std::chrono::steady_clock;

void show(OpObserver& observer, const Node& n, const Tensor& value, Clock::time_point start) {
  SeenOp seen{
      .label = n.label, .kind = name(n.op), .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
  if (n.type.dtype == DType::f32 && value.rows() > 0) {
    seen.values = value.f.data();
    seen.rows = value.rows();
    seen.width = seen.stride = static_cast<int64_t>(value.f.size()) / value.rows();
  }
  observer.seen(seen);
}

}  // namespace

bool all_finite(const Tensor& t) {
  if (t.type.dtype == DType::q8) {
    for (int64_t g = 0; g < t.q.inputs / t.q.group; ++g)
      for (int64_t r = 0; r < t.q.rows; ++r)
        if (!std::isfinite(t.q.scales[g * t.q.row_stride + r])) return false;
    return true;
  }
  return std::ranges::all_of(t.f, [](float x) { return std::isfinite(x); });
}

Result<Inputs> run_function(const Function& f, Inputs inputs, const Context& c, const CancelToken& cancel,
                            bool check_finite) {
  const std::vector<size_t> last = last_reads(f);
  std::vector<Tensor> values(f.nodes.size());
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    if (f.nodes[i].op == Op::weight) continue;
    if (cancel.cancelled()) return error(Code::cancelled, "cancelled before {}", f.nodes[i].label);
    const auto start = c.observer == nullptr ? Clock::time_point() : Clock::now();
    auto value = run_node(f, i, values, inputs, c);
    if (!value) return failure(std::move(value), f.nodes[i].label);
    if (c.npu) to_npu(f, f.nodes[i], *value);
    if (check_finite && !all_finite(*value))
      return error(Code::numerics, "{}: {} gives a value that is not finite", f.name, f.nodes[i].label);
    if (c.observer != nullptr) show(*c.observer, f.nodes[i], *value, start);
    values[i] = std::move(*value);
    for (const Value v : f.nodes[i].inputs)
      if (last[static_cast<size_t>(v.id)] == i) values[static_cast<size_t>(v.id)] = {};
  }
  Inputs outputs;
  for (const Output& o : f.outputs) outputs[o.name] = values[static_cast<size_t>(o.value.id)];
  return outputs;
}

}  // namespace onw::reference
