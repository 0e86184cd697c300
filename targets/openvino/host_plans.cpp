#include "targets/openvino/host_plans.h"

#include <algorithm>
#include <map>

#include "graph/ops.h"
#include "passes/quantise.h"
#include "quant/unpack.h"

namespace onw::openvino {
namespace {

// The steps as a function of what they take, giving what others read of them. Its inputs stand before all else: they
// are written before it runs.
Function function_of(const Program& program, const std::vector<HostStep>& steps) {
  Function f{.name = fmt::format("host of {}", steps.front().node.label), .nodes = {}, .outputs = {}};
  std::map<std::string, Value> made;
  const auto append = [&](Node node) {
    f.nodes.push_back(std::move(node));
    return Value{static_cast<int32_t>(f.nodes.size()) - 1};
  };
  for (const HostStep& step : steps)
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const std::string& name = step.operands[i];
      if (made.contains(name) || std::ranges::find(steps, name, &HostStep::result) != steps.end()) continue;
      const Op leaf = program.weight(name) != nullptr ? Op::weight : Op::input;
      made[name] = append({leaf, name, {}, {}, step.operand_types[i], {}});
    }
  for (const HostStep& step : steps) {
    Node n = step.node;
    n.inputs.clear();
    for (const std::string& name : step.operands) n.inputs.push_back(made.at(name));
    const Value v = made[step.result] = append(std::move(n));
    if (step.crosses) f.outputs.push_back({step.result, v});
  }
  return f;
}

// All experts of a stack as FP32, [experts, outputs, inputs].
std::vector<float> values_of(const WeightView& stack) {
  std::vector<float> values(static_cast<size_t>(stack.experts * stack.outputs * stack.inputs));
  float* to = values.data();
  for (int64_t e = 0; e < stack.experts; ++e) {
    const WeightView one = stack.expert(e);
    for (int64_t o = 0; o < one.outputs; ++o, to += one.inputs)
      dequantise_row(one, o, {to, static_cast<size_t>(one.inputs)});
  }
  return values;
}

}  // namespace

Result<std::unique_ptr<HostPlans>> HostPlans::create(const Program& program, const CutFunction& cut,
                                                     const BufferPlan& buffers, const WeightSet& weights,
                                                     const HostPlanOptions& options) {
  auto plans = std::make_unique<HostPlans>();
  plans->weights_ = weights;
  plans->lists_.resize(cut.host.size());
  Program own = program;
  own.functions.clear();
  std::vector<size_t> segments;
  for (size_t s = 0; s < cut.host.size(); ++s) {
    if (std::ranges::all_of(cut.host[s], is_of_cache) || options.elsewhere.contains(s)) continue;
    if (std::ranges::any_of(cut.host[s], is_of_cache))
      return error(Code::unsupported, "{}: it stands right beside attention, without a graph between",
                   cut.host[s].front().node.label);
    segments.push_back(s);
    own.functions.push_back(function_of(program, cut.host[s]));
  }
  if (segments.empty()) return plans;
  if (options.exact)
    RETURN_IF_ERROR(plans->hold_exact(own));
  else
    own = quantise_activations(own, "f32");
  for (size_t i = 0; i < segments.size(); ++i) RETURN_IF_ERROR(plans->add(own, i, segments[i], buffers, options));
  plans->arena_ = cpu::aligned_bytes(plans->arena_bytes_);
  return plans;
}

Result<void> HostPlans::hold_exact(Program& program) {
  std::map<std::string, WeightView, std::less<>> views;
  for (WeightDecl& w : program.weights) {
    const auto reads = [&](const Function& f) {
      return std::ranges::find(f.nodes, w.name, &Node::label) != f.nodes.end();
    };
    if (w.role != WeightRole::expert || info(w.format).plain() || std::ranges::none_of(program.functions, reads))
      continue;
    auto view = weights_.find(w.name);
    RETURN_IF_ERROR(view);
    const auto values = std::make_shared<const std::vector<float>>(values_of(*view));
    exact_.push_back(values);
    w.format = view->format = WeightFormat::f32;
    view->layout = Layout::rows;
    view->expert_stride = view->outputs * view->inputs * 4;
    view->codes = std::as_bytes(std::span(*values)).first(static_cast<size_t>(view->expert_stride));
    view->scales = view->minima = {};
    views[w.name] = *view;
  }
  weights_.find = [views = std::move(views), find = weights_.find](std::string_view name) -> Result<WeightView> {
    const auto found = views.find(name);
    return found == views.end() ? find(name) : found->second;
  };
  return {};
}

Result<void> HostPlans::add(const Program& program, size_t function, size_t segment, const BufferPlan& buffers,
                            const HostPlanOptions& options) {
  const Function& f = program.functions[function];
  auto plan = cpu::Plan::compile(program, f, weights_,
                                 {.max_rows = options.max_rows, .isa = options.isa, .threads = options.threads});
  RETURN_IF_ERROR(plan);
  auto list = std::make_unique<List>();
  list->plan = std::move(*plan);
  for (const Node& n : f.nodes)
    if (n.op == Op::input) list->in.push_back({buffers.slots.at(n.label), list->plan.input(n.label)});
  for (const Output& o : f.outputs) list->out.push_back({list->plan.output(o.name), buffers.slots.at(o.name)});
  arena_bytes_ = std::max(arena_bytes_, list->plan.arena_bytes());
  weight_bytes_ += list->plan.weight_bytes();
  lists_[segment] = std::move(list);
  return {};
}

void HostPlans::run(size_t segment, const cpu::RunContext& context) {
  static const CancelToken never;
  List& list = *lists_[segment];
  cpu::RunContext own = context;
  own.arena = arena_.get();
  for (const auto& [from, to] : list.in)
    for (int64_t r = 0; r < context.rows; ++r)
      std::copy_n(from.f32(context) + r * from.stride, from.width, to.f32(own) + r * to.stride);
  list.plan.run(own, never);
  for (const auto& [from, to] : list.out)
    for (int64_t r = 0; r < context.rows; ++r)
      std::copy_n(from.f32(own) + r * from.stride, from.width, to.f32(context) + r * to.stride);
}

int64_t HostPlans::exact_bytes() const {
  int64_t bytes = 0;
  for (const auto& values : exact_) bytes += static_cast<int64_t>(values->size() * sizeof(float));
  return bytes;
}

}  // namespace onw::openvino
