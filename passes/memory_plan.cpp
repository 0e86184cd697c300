#include "passes/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/result.h"
#include "graph/ops.h"

namespace onw {
namespace {

bool is_view(const Node& n) {
  if (n.op == Op::reshape) return true;
  return n.op == Op::slice && n.attributes.integer("axis") == static_cast<int64_t>(n.type.shape.size()) - 1 &&
         n.type.shape.size() == 2;
}

bool has_memory(const Node& n) { return n.op != Op::weight && n.op != Op::constant && n.type.dtype != DType::none; }

// Where a value's elements are before any op writes in place: the node that made them, and the first column there.
struct Origin {
  int32_t node = 0;
  int64_t column = 0;
};

class Lifetimes {
 public:
  Lifetimes(const Function& f, const MemoryRules& rules, std::vector<Place>& places)
      : f_(f), rules_(rules), places_(places) {
    const auto count = static_cast<int32_t>(f.nodes.size());
    for (int32_t i = 0; i < count; ++i) {
      const Node& n = node(i);
      last_read_.push_back(i);
      for (const Value v : n.inputs) last_read_[static_cast<size_t>(v.id)] = i;
      origins_.push_back({i, 0});
      if (is_view(n)) {
        origins_.back() = origin(n.inputs[0].id);
        origins_.back().column += n.op == Op::slice ? n.attributes.integer("begin") : 0;
      }
    }
    for (const Output& o : f.outputs) last_read_[static_cast<size_t>(o.value.id)] = count;
    for (int32_t i = 0; i < count; ++i) place(i);
    for (int32_t i = 0; i < count; ++i) {
      Place& owner = at(at(i).owner.id);
      owner.last_use = std::max(owner.last_use, last_read_[static_cast<size_t>(i)]);
    }
  }

 private:
  const Node& node(int32_t i) const { return f_.nodes[static_cast<size_t>(i)]; }
  const Origin& origin(int32_t i) const { return origins_[static_cast<size_t>(i)]; }
  Place& at(int32_t i) { return places_[static_cast<size_t>(i)]; }

  void place(int32_t i) {
    const Node& n = node(i);
    Place& p = at(i);
    p.owner = Value{i};
    p.first_use = p.last_use = i;
    if (is_view(n) || can_write_over_input(i)) {
      const Place& from = at(n.inputs[0].id);
      p.owner = from.owner;
      p.column = from.column + (n.op == Op::slice ? n.attributes.integer("begin") : 0);
    }
  }

  // Nothing may read the input's elements after node i, be it through the input or through another value of the same
  // origin.
  bool can_write_over_input(int32_t i) {
    const Node& n = node(i);
    if (!has_memory(n) || !rules_.in_place(n)) return false;
    const int32_t input = n.inputs[0].id;
    const Type& type = node(input).type;
    if (type.dtype != n.type.dtype || type.row_elements() != n.type.row_elements()) return false;
    if (rules_.external(node(at(input).owner.id))) return false;
    const Origin mine = origin(input);
    for (int32_t j = 0; j < static_cast<int32_t>(f_.nodes.size()); ++j) {
      const Origin& other = origin(j);
      if (other.node != mine.node || last_read_[static_cast<size_t>(j)] <= i || !has_memory(node(j))) continue;
      if (other.column < mine.column + type.row_elements() && mine.column < other.column + node(j).type.row_elements())
        return false;
    }
    return true;
  }

  const Function& f_;
  const MemoryRules& rules_;
  std::vector<Place>& places_;
  std::vector<int32_t> last_read_;  // the last node that reads the value itself; the function's end for outputs
  std::vector<Origin> origins_;
};

// First fit in order of size: simple, and within a few percent of the best on decoder graphs.
int64_t assign_offsets(const std::vector<int32_t>& owners, int64_t alignment, std::vector<Place>& places) {
  std::vector<int32_t> order = owners;
  std::ranges::sort(order, {}, [&](int32_t i) { return std::pair(-places[static_cast<size_t>(i)].bytes, i); });
  std::vector<int32_t> placed;
  int64_t total = 0;
  for (const int32_t i : order) {
    Place& p = places[static_cast<size_t>(i)];
    std::vector<const Place*> alive;
    for (const int32_t j : placed) {
      const Place& q = places[static_cast<size_t>(j)];
      if (p.first_use <= q.last_use && q.first_use <= p.last_use) alive.push_back(&q);
    }
    std::ranges::sort(alive, {}, &Place::offset);
    int64_t at = 0;
    for (const Place* q : alive) {
      if (at + p.bytes <= q->offset) break;
      at = std::max(at, round_up(q->offset + q->bytes, alignment));
    }
    p.offset = at;
    total = std::max(total, at + p.bytes);
    placed.push_back(i);
  }
  return round_up(total, alignment);
}

}  // namespace

MemoryPlan plan_memory(const Function& f, const MemoryRules& rules) {
  MemoryPlan plan;
  plan.places.resize(f.nodes.size());
  const Lifetimes lifetimes(f, rules, plan.places);
  std::vector<int32_t> owners;
  for (int32_t i = 0; i < static_cast<int32_t>(f.nodes.size()); ++i) {
    const Node& n = f.nodes[static_cast<size_t>(i)];
    Place& p = plan.places[static_cast<size_t>(i)];
    if (p.owner != Value{i} || !has_memory(n) || rules.external(n)) continue;
    p.bytes = round_up(rules.bytes(n.type), rules.alignment);
    plan.sum_bytes += p.bytes;
    owners.push_back(i);
  }
  plan.arena_bytes = assign_offsets(owners, rules.alignment, plan.places);
  for (Place& p : plan.places) {
    const Place& owner = plan.places[static_cast<size_t>(p.owner.id)];
    p.offset = owner.offset;
    p.bytes = owner.bytes;
  }
  return plan;
}

std::string print(const Function& f, const MemoryPlan& plan) {
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.places.size(); ++i)
    if (plan.places[i].offset >= 0) order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(plan.places[i].offset, i); });
  std::string text = fmt::format("{}: arena {} bytes, {} without sharing\n", f.name, plan.arena_bytes, plan.sum_bytes);
  for (const size_t i : order) {
    const Place& p = plan.places[i];
    const bool owner = p.owner.id == static_cast<int32_t>(i);
    text += fmt::format("  {:>10} {:>10}  %{:<4} {:<28} {}{}\n", p.offset, owner ? std::to_string(p.bytes) : "view", i,
                        f.nodes[i].label, to_string(f.nodes[i].type),
                        owner ? fmt::format("  nodes {}..{}", p.first_use, p.last_use)
                              : fmt::format("  of %{} column {}", p.owner.id, p.column));
  }
  return text;
}

}  // namespace onw
