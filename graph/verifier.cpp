#include "graph/verifier.h"

#include "graph/ops.h"
#include "graph/shape_rules.h"

namespace onw {
namespace {

Result<void> verify_leaf(const Node& n, const Program& program) {
  if (n.op == Op::constant) {
    int64_t count = 1;
    for (const int64_t d : n.type.shape) count *= d;
    if (count != static_cast<int64_t>(n.constant.size()))
      return error(Code::invalid_argument, "constant is {} but holds {} values", to_string(n.type), n.constant.size());
  }
  if (n.op == Op::weight) {
    const WeightDecl* w = program.weight(n.label);
    if (w == nullptr) return error(Code::invalid_argument, "weight '{}' is not declared", n.label);
    if (w->shape != n.type.shape)
      return error(Code::invalid_argument, "weight '{}' is declared {}, used as {}", n.label, to_string(w->shape),
                   to_string(n.type));
  }
  return {};
}

Result<void> verify_state(const Node& n, const Function& f, const Program& program) {
  const std::string_view name = n.attributes.text("state");
  if (name.empty()) return {};
  const int index = program.state(name);
  if (index < 0) return error(Code::invalid_argument, "state '{}' is not declared", name);
  const StateDecl& s = program.states[static_cast<size_t>(index)];
  const Type& x = f.type(n.inputs[0]);
  if (n.op == Op::kv_write &&
      (x.shape[1] != s.heads || x.shape[2] != s.head_dim || f.type(n.inputs[1]).shape[2] != s.value_dim))
    return error(Code::invalid_argument, "k {} does not fit state '{}' of {} heads of {}", to_string(x), name, s.heads,
                 s.head_dim);
  if (n.op == Op::attention &&
      (x.shape[1] % s.heads != 0 || x.shape[2] != s.head_dim || n.type.shape[2] != s.value_dim))
    return error(Code::invalid_argument, "q {} does not fit state '{}' of {} heads of {}", to_string(x), name, s.heads,
                 s.head_dim);
  if (n.op == Op::conv_update &&
      (s.kind != StateKind::conv || x.shape[1] != s.heads || f.type(n.inputs[1]).shape[1] != s.kernel))
    return error(Code::invalid_argument, "x {} and w {} do not fit state '{}' of {} channels and a kernel of {}",
                 to_string(x), to_string(f.type(n.inputs[1])), name, s.heads, s.kernel);
  const Type& v = f.type(n.inputs.back());
  if (n.op == Op::gated_delta && (s.kind != StateKind::delta || x.shape[1] != s.key_heads || x.shape[2] != s.head_dim ||
                                  v.shape[1] != s.heads || n.type.shape[2] != s.value_dim))
    return error(Code::invalid_argument,
                 "q {} and v {} do not fit state '{}' of {} key heads of {} and {} value heads of {}", to_string(x),
                 to_string(n.type), name, s.key_heads, s.head_dim, s.heads, s.value_dim);
  return {};
}

Result<void> verify_node(const Node& n, int32_t id, const Function& f, const Program& program, Level level) {
  std::vector<Type> inputs;
  for (const Value v : n.inputs) {
    if (v.id < 0 || v.id >= id) return error(Code::invalid_argument, "input %{} is not defined before", v.id);
    inputs.push_back(f.type(v));
  }
  const Level own = info(n.op).level;
  if (own != Level::both && own != level)
    return error(Code::invalid_argument, "{} is not an op of the {} level", name(n.op),
                 level == Level::coarse ? "coarse" : "primitive");
  if (n.op == Op::input || n.op == Op::weight || n.op == Op::constant) return verify_leaf(n, program);
  const auto type = result_type(n.op, inputs, n.attributes);
  RETURN_IF_ERROR(type);
  if (*type != n.type)
    return error(Code::invalid_argument, "{} gives {}, the node says {}", name(n.op), to_string(*type),
                 to_string(n.type));
  return verify_state(n, f, program);
}

}  // namespace

Result<void> verify(const Function& f, const Program& program, Level level) {
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    auto ok = verify_node(f.nodes[i], static_cast<int32_t>(i), f, program, level);
    if (!ok) return failure(std::move(ok), fmt::format("{}: {}", f.name, f.nodes[i].label));
  }
  for (const Output& o : f.outputs)
    if (o.value.id < 0 || o.value.id >= static_cast<int32_t>(f.nodes.size()))
      return error(Code::invalid_argument, "{}: output '{}' is not defined", f.name, o.name);
  return {};
}

Result<void> verify(const Program& program, Level level) {
  for (const Function& f : program.functions) RETURN_IF_ERROR(verify(f, program, level));
  return {};
}

}  // namespace onw
