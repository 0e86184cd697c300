#include "targets/openvino/host_steps.h"

#include "graph/ops.h"
#include "quant/unpack.h"

namespace onw::openvino {
namespace {

Result<std::shared_ptr<const std::vector<float>>> vector_of(const WeightSet& weights, const std::string& name) {
  const auto view = weights.find(name);
  RETURN_IF_ERROR(view);
  const auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(view->outputs));
  for (int64_t i = 0; i < view->outputs; ++i)
    dequantise_row(*view, i, std::span(*values).subspan(static_cast<size_t>(i), 1));
  return std::shared_ptr<const std::vector<float>>(values);
}

}  // namespace

Result<HostSteps> HostSteps::create(const Program& program, const CutFunction& cut, const BufferPlan& buffers,
                                    const WeightSet& weights, KvFormat kv, const cpu::PlanOptions& options) {
  HostSteps all;
  std::shared_ptr<cpu::AttentionWork> work;
  const auto slot = [&](const std::string& name) { return buffers.slots.at(name); };
  for (const auto& between : cut.host) {
    auto& steps = all.steps_.emplace_back();
    for (const HostStep& step : between) {
      const Node& n = step.node;
      const int state = program.state(n.attributes.text("state"));
      CHECK(state >= 0);
      const StateDecl& decl = program.states[static_cast<size_t>(state)];
      if (n.op == Op::kv_write) {
        steps.push_back(cpu::make_kv_write(n.label, {.k = slot(step.operands[0]),
                                                     .v = slot(step.operands[1]),
                                                     .state = state,
                                                     .heads = decl.heads,
                                                     .head_dim = decl.head_dim}));
        continue;
      }
      if (n.attributes.integer("bidirectional") != 0 || decl.value_dim != decl.head_dim)
        return error(Code::unsupported, "{}: bidirectional attention, or values of a size of their own", n.label);
      cpu::AttentionStep attention{.q = slot(step.operands[0]),
                                   .y = slot(step.result),
                                   .state = state,
                                   .heads = n.type.shape[1],
                                   .kv_heads = decl.heads,
                                   .window = n.attributes.integer("window")};
      attention.form = {kv, static_cast<int>(decl.head_dim), static_cast<float>(n.attributes.number("scale", 1)),
                        static_cast<float>(n.attributes.number("soft_cap"))};
      if (step.operands.size() > 1) {
        const auto sinks = vector_of(weights, step.operands[1]);
        RETURN_IF_ERROR(sinks);
        all.sinks_.push_back(*sinks);
        attention.sinks = *all.sinks_.back();
      }
      steps.push_back(cpu::make_attention(n.label, attention, options, work));
    }
  }
  return all;
}

}  // namespace onw::openvino
