#include "passes/quantise.h"

#include <algorithm>
#include <map>

#include "base/result.h"
#include "graph/ops.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

// The activation group that a weight asks for; 0 for plain ones.
int64_t asked_group(const WeightDecl& w) {
  const FormatInfo& f = info(w.format);
  if (f.plain()) return 0;
  const int64_t inputs = w.shape.back();
  const int64_t own = f.group == 0 ? group_for(inputs) : f.group;
  CHECK(own > 0);
  return own;
}

int64_t asked_group(const Program& p, const Function& f, const Node& n, size_t input) {
  const WeightDecl* w = p.weight(f.node(n.inputs[input]).label);
  CHECK(w != nullptr);
  return asked_group(*w);
}

// Of what the node's first input is multiplied with.
int64_t asked_group(const Program& p, const Function& f, const Node& n) {
  if (n.op == Op::linear) return asked_group(p, f, n, 1);
  if (n.op != Op::experts) return 0;
  const int64_t gate = asked_group(p, f, n, 2), up = asked_group(p, f, n, 3);
  CHECK((gate == 0) == (up == 0));  // both have the same inputs: convert makes both plain, or none
  return std::min(gate, up);
}

Function quantise(const Program& p, const Function& f) {
  std::map<Value, int64_t> groups;  // of the values that quantised linears read
  for (const Node& n : f.nodes) {
    const int64_t group = asked_group(p, f, n);
    if (group == 0) continue;
    auto [at, fresh] = groups.try_emplace(n.inputs[0], group);
    if (!fresh) at->second = std::min(at->second, group);
  }
  Rewriter r(f);
  std::map<Value, Value> quantised;
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const Value old{static_cast<int32_t>(i)};
    const Value now = r.copy(old);
    if (const auto found = groups.find(old); found != groups.end()) {
      const Node& x = f.nodes[i];
      quantised[old] = r.append({Op::quantize,
                                 sub_label(x, "quantize"),
                                 {now},
                                 {{"group", found->second}},
                                 Type{DType::q8, x.type.shape, found->second},
                                 {}});
    }
    if (asked_group(p, f, f.nodes[i]) > 0) r.node(now).inputs[0] = quantised.at(f.nodes[i].inputs[0]);
    if (f.nodes[i].op == Op::experts)
      if (const int64_t inner = asked_group(p, f, f.nodes[i], 4); inner > 0) r.node(now).attributes.set("group", inner);
  }
  return r.finish();
}

}  // namespace

Program set_kv_format(const Program& program, std::string_view kv) {
  Program out = program;
  for (Function& f : out.functions)
    for (Node& n : f.nodes)
      if (n.op == Op::kv_write || n.op == Op::attention) n.attributes.set("kv", std::string(kv));
  return out;
}

Program quantise_activations(const Program& program, std::string_view kv) {
  Program out = set_kv_format(program, kv);
  for (Function& f : out.functions) f = quantise(out, f);
  return out;
}

}  // namespace onw
