#include "passes/rewrite.h"

#include "graph/ops.h"
#include "graph/shape_rules.h"

namespace onw {

Value Rewriter::copy(Value old) {
  Node n = from_.node(old);
  for (Value& v : n.inputs) v = map(v);
  const Value now = append(std::move(n));
  replace(old, now);
  return now;
}

Value Rewriter::append(Node node) {
  for (const Value v : node.inputs) CHECK(v.valid());
  to_.nodes.push_back(std::move(node));
  return Value{static_cast<int32_t>(to_.nodes.size()) - 1};
}

Function Rewriter::finish() {
  for (const Output& o : from_.outputs) to_.outputs.push_back({o.name, map(o.value)});
  std::vector<bool> used(to_.nodes.size());
  for (const Output& o : to_.outputs) used[static_cast<size_t>(o.value.id)] = true;
  for (size_t i = to_.nodes.size(); i-- > 0;) {
    const Node& n = to_.nodes[i];
    if (n.op == Op::input || info(n.op).effect) used[i] = true;
    if (used[i])
      for (const Value v : n.inputs) used[static_cast<size_t>(v.id)] = true;
  }
  Function out{to_.name, {}, std::move(to_.outputs)};
  std::vector<Value> place(to_.nodes.size());
  for (size_t i = 0; i < to_.nodes.size(); ++i) {
    if (!used[i]) continue;
    Node n = std::move(to_.nodes[i]);
    for (Value& v : n.inputs) v = place[static_cast<size_t>(v.id)];
    place[i] = Value{static_cast<int32_t>(out.nodes.size())};
    out.nodes.push_back(std::move(n));
  }
  for (Output& o : out.outputs) o.value = place[static_cast<size_t>(o.value.id)];
  return out;
}

Uses::Uses(const Function& f) : users(f.nodes.size()), outputs(f.nodes.size()) {
  for (size_t i = 0; i < f.nodes.size(); ++i)
    for (const Value v : f.nodes[i].inputs) users[static_cast<size_t>(v.id)].push_back(Value{static_cast<int32_t>(i)});
  for (const Output& o : f.outputs) ++outputs[static_cast<size_t>(o.value.id)];
}

std::string sub_label(const Node& node, std::string_view part) { return node.label + "." + std::string(part); }

Value append_part(Function& to, const PartOf& part, Op op, std::vector<Value> inputs, Attributes attributes) {
  std::vector<Type> types;
  for (const Value v : inputs) types.push_back(v.valid() ? to.type(v) : Type{});
  auto t = result_type(op, types, attributes);
  if (!t) {
    if (!part.error) part.error = Error{t.error().code, fmt::format("{}: {}", part.step.label, t.error().message)};
    t = Type{DType::f32, {1, 1, 1, 1}, 0};
  }
  to.nodes.push_back({op,
                      sub_label(part.step, fmt::format("{}.{}", part.number, name(op))),
                      std::move(inputs),
                      std::move(attributes),
                      std::move(*t),
                      {}});
  return Value{static_cast<int32_t>(to.nodes.size()) - 1};
}

}  // namespace onw
