#include "passes/bind_formats.h"

#include "graph/ops.h"

namespace onw {
namespace {

// Gate and up of an expert take the same rows, as codes or as FP32.
Result<void> check_experts(const Program& program) {
  for (const Function& f : program.functions)
    for (const Node& n : f.nodes) {
      if (n.op != Op::experts) continue;
      const WeightDecl *gate = program.weight(f.node(n.inputs[2]).label),
                       *up = program.weight(f.node(n.inputs[3]).label);
      CHECK(gate != nullptr && up != nullptr);
      if (gate->format != up->format)
        return error(Code::bad_format, "'{}' is {}, '{}' is {}: experts of mixed formats. Convert the model again.",
                     gate->name, name(gate->format), up->name, name(up->format));
    }
  return {};
}

}  // namespace

Result<void> bind_formats(Program& program, const FormatOf& format_of) {
  for (WeightDecl& w : program.weights) {
    const auto format = format_of(w.name);
    if (!format)
      return error(Code::missing_tensor, "the model folder has no weight '{}'. Convert the model again.", w.name);
    w.format = *format;
  }
  return check_experts(program);
}

}  // namespace onw
