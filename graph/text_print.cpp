#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/ops.h"
#include "graph/text.h"

namespace onw {
namespace {

std::string print(const Attribute& a) {
  if (const auto* n = std::get_if<int64_t>(&a)) return fmt::format("{}", *n);
  if (const auto* x = std::get_if<double>(&a)) {
    const std::string text = fmt::format("{}", *x);  // the shortest that reads back equal
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* s = std::get_if<std::string>(&a)) return fmt::format("\"{}\"", *s);
  const auto& list = std::get<std::vector<int64_t>>(a);
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i)
    text += fmt::format("{}{}", i > 0 ? "," : "", list[i] == kRows ? "S" : std::to_string(list[i]));
  return text + "]";
}

std::string print(const Node& n, size_t id) {
  std::string text = fmt::format("  %{} = {}", id, name(n.op));
  std::string arguments;
  for (const Value v : n.inputs) arguments += fmt::format("{}%{}", arguments.empty() ? "" : ", ", v.id);
  std::string attributes;
  for (const auto& [key, value] : n.attributes.list())
    attributes += fmt::format("{}{}={}", attributes.empty() ? "" : ", ", key, print(value));
  if (!attributes.empty()) arguments += (arguments.empty() ? "; " : "; ") + attributes;
  if (!arguments.empty()) text += "(" + arguments + ")";
  if (n.op == Op::constant) text += fmt::format("{{{}}}", fmt::join(n.constant, ","));
  return text + fmt::format(" \"{}\" : {}\n", n.label, to_string(n.type));
}

std::string_view name(WeightRole role) {
  switch (role) {
    case WeightRole::matrix:
      return "matrix";
    case WeightRole::embedding:
      return "embedding";
    case WeightRole::lookup:
      return "lookup";
    case WeightRole::head:
      return "head";
    case WeightRole::vector:
      return "vector";
    case WeightRole::router:
      return "router";
    case WeightRole::expert:
      return "expert";
  }
  return "?";
}

std::string_view name(StateKind kind) {
  switch (kind) {
    case StateKind::kv:
      return "kv";
    case StateKind::conv:
      return "conv";
    case StateKind::delta:
      return "delta";
  }
  return "?";
}

std::string print(const StateDecl& s) {
  std::string text = fmt::format("state {} {} layer={} heads={} head_dim={} value_dim={}", s.name, name(s.kind),
                                 s.layer, s.heads, s.head_dim, s.value_dim);
  if (s.window > 0) text += fmt::format(" window={}", s.window);
  if (s.kernel > 0) text += fmt::format(" kernel={}", s.kernel);
  if (s.key_heads > 0) text += fmt::format(" key_heads={}", s.key_heads);
  return text + "\n";
}

}  // namespace

std::string print(const Function& f) {
  std::string text = f.name + " {\n";
  for (size_t i = 0; i < f.nodes.size(); ++i) text += print(f.nodes[i], i);
  text += "  return";
  for (size_t i = 0; i < f.outputs.size(); ++i)
    text += fmt::format("{} {}=%{}", i > 0 ? "," : "", f.outputs[i].name, f.outputs[i].value.id);
  return text + "\n}\n";
}

std::string print(const Program& p) {
  std::string text =
      fmt::format("program {} layers={} hidden={} vocabulary={} max_context={} embedding={} embedding_scale={}\n",
                  p.family, p.layers, p.hidden, p.vocabulary, p.max_context, p.embedding, p.embedding_scale);
  for (const WeightDecl& w : p.weights) {
    text += fmt::format("weight {} {} {} {}", w.name, to_string(w.shape), name(w.format), name(w.role));
    if (!w.group.empty()) text += fmt::format(" group={}", w.group);
    if (!w.parts.empty()) text += fmt::format(" parts={}", fmt::join(w.parts, ","));
    text += "\n";
  }
  for (const RowLookup& l : p.lookups)
    text += fmt::format("lookup {} weight={} scale={}\n", l.input, l.weight, l.scale);
  for (const StateDecl& s : p.states) text += print(s);
  for (const RopeTable& r : p.rope_tables)
    text += fmt::format("rope {} scaling={} inv_freq={}\n", r.name, r.scaling, fmt::join(r.inv_freq, ","));
  for (const Function& f : p.functions) text += print(f);
  return text;
}

std::string dot(const Function& f) {
  std::string text =
      fmt::format("digraph \"{}\" {{\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\"];\n", f.name);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const Node& n = f.nodes[i];
    if (n.op == Op::weight) continue;
    text += fmt::format("  n{} [label=\"{}\\n{} {}\"];\n", i, n.label, name(n.op), to_string(n.type));
    for (const Value v : n.inputs)
      if (f.node(v).op != Op::weight) text += fmt::format("  n{} -> n{};\n", v.id, i);
  }
  for (const Output& o : f.outputs)
    text += fmt::format("  out_{0} [label=\"{0}\", shape=ellipse];\n  n{1} -> out_{0};\n", o.name, o.value.id);
  return text + "}\n";
}

}  // namespace onw
