#include "passes/merge_linears.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/result.h"
#include "graph/ops.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

using Group = std::vector<Value>;  // linears, in the order in which they stand

const WeightDecl& weight_of(const Program& p, const Function& f, const Node& linear, size_t input) {
  const WeightDecl* w = p.weight(f.node(linear.inputs[input]).label);
  CHECK(w != nullptr);
  return *w;
}

std::vector<std::string> weight_names(const Function& f, const Group& group, size_t input) {
  std::vector<std::string> names;
  for (const Value v : group) names.push_back(f.node(f.node(v).inputs[input]).label);
  return names;
}

bool mergeable(const Program& p, const Function& f, const Group& group, const Adjacent& adjacent) {
  if (group.size() < 2) return false;
  const Node& first = f.node(group.front());
  for (const Value v : group) {
    const Node& n = f.node(v);
    if (n.inputs.size() != first.inputs.size()) return false;
    if (weight_of(p, f, n, 1).format != weight_of(p, f, first, 1).format) return false;
    if (v != group.back() && n.type.last() % 16 != 0) return false;
  }
  return adjacent(weight_names(f, group, 1));
}

// The groups to merge, by their first linear.
std::map<Value, Group> find_groups(const Program& p, const Function& f, const Adjacent& adjacent) {
  std::map<std::pair<Value, std::string>, Group> by_input;
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const Node& n = f.nodes[i];
    if (n.op != Op::linear) continue;
    if (const std::string& group = weight_of(p, f, n, 1).group; !group.empty())
      by_input[{n.inputs[0], group}].push_back(Value{static_cast<int32_t>(i)});
  }
  std::map<Value, Group> found;
  for (auto& [key, group] : by_input)
    if (mergeable(p, f, group, adjacent)) found[group.front()] = group;
  return found;
}

// A weight whose outputs are those of its parts, one after the other.
WeightDecl merged_weight(const Program& p, const std::vector<std::string>& parts, const std::string& name) {
  WeightDecl merged = *p.weight(parts.front());
  merged.name = name;
  merged.parts = parts;
  merged.shape[0] = 0;
  for (const std::string& part : parts) merged.shape[0] += p.weight(part)->shape[0];
  return merged;
}

Value append_weight(Program& p, Rewriter& r, WeightDecl merged) {
  const Value v = r.append({Op::weight, merged.name, {}, {}, Type{DType::f32, merged.shape, 0}, {}});
  if (p.weight(merged.name) == nullptr) p.weights.push_back(std::move(merged));
  return v;
}

void append_merged(Program& p, const Function& f, Rewriter& r, const Group& group) {
  const Node& first = f.node(group.front());
  const WeightDecl& w = weight_of(p, f, first, 1);
  const std::string name = w.group;
  std::string label = first.label;
  for (const Value v : group)
    if (v != group.front()) label += "+" + f.node(v).label.substr(f.node(v).label.find('/') + 1);
  Node n{Op::linear, label, {r.map(first.inputs[0])}, first.attributes, first.type, {}};
  const bool biased = first.inputs.size() > 2;
  WeightDecl merged = merged_weight(p, weight_names(f, group, 1), name);
  n.type.shape.back() = merged.shape[0];
  n.inputs.push_back(append_weight(p, r, std::move(merged)));
  if (biased) n.inputs.push_back(append_weight(p, r, merged_weight(p, weight_names(f, group, 2), name + ".bias")));
  const Value all = r.append(std::move(n));
  int64_t begin = 0;
  for (const Value v : group) {
    const Node& part = f.node(v);
    const int64_t end = begin + part.type.last();
    r.replace(
        v, r.append(
               {Op::slice, part.label, {all}, {{"axis", int64_t{1}}, {"begin", begin}, {"end", end}}, part.type, {}}));
    begin = end;
  }
}

}  // namespace

Program merge_linears(const Program& program, const Adjacent& adjacent) {
  Program out = program;
  for (Function& f : out.functions) {
    const auto groups = find_groups(out, f, adjacent);
    std::set<Value> inside;
    for (const auto& [first, group] : groups) inside.insert(group.begin(), group.end());
    Rewriter r(f);
    for (size_t i = 0; i < f.nodes.size(); ++i) {
      const Value v{static_cast<int32_t>(i)};
      if (const auto found = groups.find(v); found != groups.end()) {
        append_merged(out, f, r, found->second);
      } else if (!inside.contains(v)) {
        r.copy(v);
      }
    }
    Function merged = r.finish();
    f = std::move(merged);
  }
  return out;
}

}  // namespace onw
