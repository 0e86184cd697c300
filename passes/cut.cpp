#include "passes/cut.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/ops.h"
#include "passes/delta_scales.h"

namespace onw {
namespace {

class Cutter {
 public:
  explicit Cutter(const Function& from, bool states_inside = false)
      : from_(from),
        states_inside_(states_inside),
        segment_of_(from.nodes.size(), kNowhere),
        ready_at_(from.nodes.size()),
        place_(from.nodes.size()) {}

  Result<CutFunction> run() {
    begin_segment();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      const Value v{static_cast<int32_t>(i)};
      const Node& n = from_.node(v);
      if (n.op == Op::input || n.op == Op::weight) continue;  // taken by who reads them
      if (is_host_op(n.op)) {
        RETURN_IF_ERROR(host_step(v));
        continue;
      }
      if (info(n.op).effect && !is_of_state(n.op))
        return error(Code::unsupported, "{}: {}: the host has no step for '{}' yet", from_.name, n.label, name(n.op));
      graph_node(v);
    }
    if (!waiting_.empty()) end_wait();
    for (const Output& o : from_.outputs) {
      if (out_.host.size() == out_.segments.size() && ready_at_[static_cast<size_t>(o.value.id)] > current())
        return error(Code::unsupported, "{}: {}: no graph stands behind this step of the host's", from_.name,
                     from_.node(o.value).label);
      give(o.value, o.name);
    }
    return std::move(out_);
  }

  CutFunction pieces(int attentions) {
    begin_segment();
    const std::vector<size_t> last = last_uses();
    auto left = std::ranges::count(from_.nodes, Op::attention, &Node::op);
    for (size_t i = 0, inside = 0; i < from_.nodes.size(); ++i) {
      const Op op = from_.nodes[i].op;
      if (op == Op::input || op == Op::weight) continue;
      put(Value{static_cast<int32_t>(i)});
      if (op == Op::attention) ++inside, --left;
      if (left == 0 || inside < static_cast<size_t>(attentions) || crossing(i, last) != 1) continue;
      begin_segment();
      inside = 0;
    }
    for (const Output& o : from_.outputs) give(o.value, o.name);
    return std::move(out_);
  }

 private:
  static constexpr int kNowhere = -1;  // inputs, weights and what the host makes

  void begin_segment() {
    out_.segments.push_back({fmt::format("{}.{}", from_.name, out_.segments.size()), {}, {}});
    here_.clear();
  }
  size_t current() const { return out_.segments.size() - 1; }

  // The node that reads each value last; behind all of them for an output.
  std::vector<size_t> last_uses() const {
    std::vector<size_t> last(from_.nodes.size());
    for (size_t i = 0; i < from_.nodes.size(); ++i)
      for (const Value in : from_.nodes[i].inputs) last[static_cast<size_t>(in.id)] = i;
    for (const Output& o : from_.outputs) last[static_cast<size_t>(o.value.id)] = from_.nodes.size();
    return last;
  }

  // Values made up to node i and read behind it.
  size_t crossing(size_t i, const std::vector<size_t>& last) const {
    size_t count = 0;
    for (size_t n = 0; n <= i; ++n) count += segment_of_[n] != kNowhere && last[n] > i ? 1 : 0;
    return count;
  }

  Value append(Node node) {
    auto& nodes = out_.segments.back().nodes;
    nodes.push_back(std::move(node));
    return Value{static_cast<int32_t>(nodes.size()) - 1};
  }

  // The value as an output of the segment that makes it, under `as`; one of the host's goes by its own name.
  void give(Value v, const std::string& as) {
    if (const auto made = host_made_.find(v); made != host_made_.end())
      out_.host[made->second.list][made->second.step].crosses = true;
    const int segment = segment_of_[static_cast<size_t>(v.id)];
    if (segment == kNowhere) return;
    Function& f = out_.segments[static_cast<size_t>(segment)];
    if (std::ranges::find(f.outputs, as, &Output::name) == f.outputs.end())
      f.outputs.push_back({as, place_[static_cast<size_t>(v.id)]});
  }

  // The value in the current segment: made there, or taken in.
  Value take(Value v) {
    if (segment_of_[static_cast<size_t>(v.id)] == static_cast<int>(current())) return place_[static_cast<size_t>(v.id)];
    if (const auto found = here_.find(v); found != here_.end()) return found->second;
    const Node& n = from_.node(v);
    give(v, from_.node(v).label);
    const Value taken = append({n.op == Op::weight ? Op::weight : Op::input, from_.node(v).label, {}, {}, n.type, {}});
    here_[v] = taken;
    return taken;
  }

  void put(Value v) {
    Node n = from_.node(v);
    for (Value& in : n.inputs) in = take(in);
    place_[static_cast<size_t>(v.id)] = append(std::move(n));
    segment_of_[static_cast<size_t>(v.id)] = static_cast<int>(current());
    ready_at_[static_cast<size_t>(v.id)] = current();
  }

  static bool is_of_state(Op op) { return op == Op::conv_update || op == Op::gated_delta; }

  bool is_host_op(Op op) const {
    constexpr Op kOps[] = {Op::kv_write, Op::attention, Op::route, Op::experts};
    return std::ranges::find(kOps, op) != std::end(kOps) || (is_of_state(op) && !states_inside_);
  }

  // What a host computes as it goes.
  static bool is_light(Op op) {
    constexpr Op kOps[] = {Op::reshape, Op::slice,    Op::scale, Op::activate,
                           Op::l2_norm, Op::rms_norm, Op::add,   Op::multiply};
    return std::ranges::find(kOps, op) != std::end(kOps);
  }

  // Into the current segment where it needs nothing that comes behind that. Else it waits for what follows: a product
  // makes a segment of all that wait.
  void graph_node(Value v) {
    const Node& n = from_.node(v);
    const bool ready =
        std::ranges::all_of(n.inputs, [&](Value in) { return ready_at_[static_cast<size_t>(in.id)] <= current(); });
    if (ready) return put(v);
    ready_at_[static_cast<size_t>(v.id)] = current() + 1;
    waiting_.push_back(v);
    if (!is_light(n.op)) end_wait();
  }

  void end_wait() {
    begin_segment();
    for (const Value v : std::exchange(waiting_, {})) put(v);
  }

  Result<void> host_step(Value v) {
    const Node& n = from_.node(v);
    if (n.op == Op::gated_delta)
      for (const Value light : std::exchange(waiting_, {})) add_host_step(light);
    else if (!waiting_.empty())
      end_wait();
    if (out_.segments.back().nodes.empty())
      return error(Code::unsupported, "{}: {}: no graph stands before this step of the host's", from_.name, n.label);
    add_host_step(v);
    return {};
  }

  void add_host_step(Value v) {
    const Node& n = from_.node(v);
    if (out_.host.size() < out_.segments.size()) out_.host.emplace_back();
    HostStep step{n, {}, n.type.dtype == DType::none ? "" : n.label};
    for (const Value in : n.inputs) {
      const auto made = host_made_.find(in);
      if (made == host_made_.end() || made->second.list != current()) give(in, from_.node(in).label);
      step.operands.push_back(from_.node(in).label);
      step.operand_types.push_back(from_.type(in));
    }
    if (!step.result.empty()) {
      ready_at_[static_cast<size_t>(v.id)] = current() + 1;
      host_made_[v] = {current(), out_.host.back().size()};
    }
    out_.host.back().push_back(std::move(step));
  }

  const Function& from_;
  bool states_inside_;
  CutFunction out_;
  std::vector<int> segment_of_;
  std::vector<size_t> ready_at_;  // the first segment that can read the value
  std::vector<Value> place_;
  std::vector<Value> waiting_;  // for what follows: they need results of the host behind the current segment
  struct HostPlace {
    size_t list = 0, step = 0;
  };
  std::map<Value, HostPlace> host_made_;
  std::map<Value, Value> here_;  // what the current segment takes in
};

}  // namespace

bool is_of_cache(const HostStep& step) { return step.node.op == Op::kv_write || step.node.op == Op::attention; }

Result<CutFunction> cut_at_host_steps(const Function& function) { return Cutter(function).run(); }

Result<CutFunction> cut_for_fixed_rows(const Function& function) { return Cutter(delta_scales(function), true).run(); }

CutFunction cut_in_pieces(const Function& function, int attentions) {
  return Cutter(function).pieces(std::max(attentions, 1));
}

}  // namespace onw
