#include "targets/reference/npu_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "graph/ops.h"
#include "kernels/attention/attention.h"
#include "passes/decompose.h"
#include "passes/delta_scales.h"
#include "passes/legalize_npu.h"
#include "targets/op_observer.h"
#include "targets/reference/body_inputs.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/npu.h"

namespace onw {
namespace {

using namespace reference;

constexpr float kMasked = -1e30f;

using Labels = std::set<std::string, std::less<>>;

// Ranges of every layer, and the values that it ends with.
class Layers final : public OpObserver {
 public:
  Layers(Labels masked, Labels before) : masked_(std::move(masked)), before_(std::move(before)) {}

  void seen(const SeenOp& op) override {
    if (op.values == nullptr || op.kind == "input" || op.kind == "constant" || masked_.contains(op.label)) return;
    const size_t slash = op.label.find('/');
    const std::string name = slash != op.label.npos       ? std::string(op.label.substr(0, slash))
                             : before_.contains(op.label) ? "inputs"
                                                          : "head";
    const auto at = static_cast<size_t>(std::ranges::find(all, name, &NpuLayer::name) - all.begin());
    if (at == all.size()) all.push_back({.name = name}), last.emplace_back();
    const std::span values(op.values, static_cast<size_t>(op.rows * op.width));
    last[at].assign(values.begin(), values.end());
    for (const float x : values) count(all[at], std::fabs(x));
  }

  std::vector<NpuLayer> all;
  std::vector<std::vector<float>> last;

 private:
  static void count(NpuLayer& layer, float x) {
    ++layer.values;
    layer.largest = std::max(layer.largest, x);
    layer.overflows += std::isinf(npu_value(x)) ? 1 : 0;
    layer.lost += x > 0 && npu_value(x) == 0 ? 1 : 0;
  }

  Labels masked_, before_;
};

// Steps whose results hold a mask: from its input to the softmax.
Labels masked_steps(const Function& f) {
  Labels found;
  for (const Node& n : f.nodes) {
    const bool mask = n.op == Op::input && n.label.ends_with(".mask");
    const bool follows = std::ranges::any_of(n.inputs, [&](Value v) { return found.contains(f.node(v).label); });
    if (mask || (follows && n.op != Op::softmax)) found.insert(n.label);
  }
  return found;
}

// Steps that stand before the first layer.
Labels steps_before_layers(const Function& f) {
  Labels found;
  for (const Node& n : f.nodes) {
    const bool leaf = n.op == Op::input || n.op == Op::weight || n.op == Op::constant;
    if (!leaf && n.label.find('/') != n.label.npos) break;
    found.insert(n.label);
  }
  return found;
}

double difference(const std::vector<float>& exact, const std::vector<float>& npu) {
  double off = 0, whole = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(npu[i])) return std::numeric_limits<double>::infinity();
    off += std::pow(static_cast<double>(npu[i]) - static_cast<double>(exact[i]), 2);
    whole += std::pow(static_cast<double>(exact[i]), 2);
  }
  return whole > 0 ? std::sqrt(off / whole) : 0;
}

// What each row of a block behind `cached` positions sees.
void add_masks(const Program& program, const Function& body, int64_t cached, Inputs& inputs) {
  constexpr std::string_view kMask = ".mask";
  for (const Node& n : body.nodes) {
    if (n.op != Op::input || !n.label.ends_with(kMask)) continue;
    const int state = program.state(n.label.substr(0, n.label.size() - kMask.size()));
    Tensor mask = make_tensor(n.type, 0);
    for (int64_t r = 0; r < mask.rows(); ++r) {
      const Visible seen = causal(cached + r, program.states[static_cast<size_t>(state)].window);
      for (int64_t p = 0; p < n.type.last(); ++p)
        if (p < seen.begin || p >= seen.end) mask.row(r)[static_cast<size_t>(p)] = kMasked;
    }
    inputs[n.label] = std::move(mask);
  }
}

Result<Function> lowered(const Program& p, std::string_view name, int64_t rows, int64_t cached) {
  const Function* f = p.function(name);
  if (f == nullptr) return error(Code::invalid_argument, "the program has no function '{}'", name);
  const auto primitives = decompose(p, delta_scales(*f), {.rows = rows, .cache_tokens = cached});
  RETURN_IF_ERROR(primitives);
  return legalize_npu(*primitives);
}

struct PromptBlock {
  Function body;
  std::vector<Row> rows;
  int64_t cached = 0;
};

Result<std::vector<PromptBlock>> prompt_blocks(const Program& program, const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < 2) return error(Code::invalid_argument, "a check takes two tokens at least, these are {}", count);
  std::vector<PromptBlock> blocks;
  for (const auto& [begin, end] : {std::pair(int64_t{0}, count / 2), {count / 2, count}}) {
    auto body = lowered(program, "body", end - begin, begin);
    RETURN_IF_ERROR(body);
    PromptBlock& b = blocks.emplace_back(PromptBlock{std::move(*body), {}, begin});
    for (int64_t i = begin; i < end; ++i) b.rows.push_back(text_row(0, i, tokens[static_cast<size_t>(i)], false));
  }
  return blocks;
}

// What convolutions and delta states begin with, and that every row counts.
void add_recurrent(const Function& body, Inputs& inputs) {
  for (const Node& n : body.nodes) {
    if (n.op != Op::input || (n.label != "rows_used" && !n.label.ends_with(".before"))) continue;
    Tensor t = make_tensor(n.type, 0);
    if (n.label == "rows_used") std::ranges::fill(t.f, 1.0f);
    inputs.try_emplace(n.label, std::move(t));
  }
}

// What a block leaves to the next one.
void carry_states(const Program& program, Inputs& outputs, Inputs& cache) {
  for (const StateDecl& s : program.states) {
    for (const char* part : {".k", ".v"})
      if (const auto made = outputs.find(s.name + part + "_new"); made != outputs.end())
        cache[s.name + part] = std::move(made->second);
    const auto all = outputs.find(s.name + (s.kind == StateKind::conv ? ".rows" : ".after"));
    if (all == outputs.end()) continue;
    const Shape shape =
        s.kind == StateKind::conv ? Shape{s.kernel - 1, s.heads} : Shape{s.heads, s.head_dim, s.value_dim};
    Tensor last = make_tensor({DType::f32, shape, 0}, 0);
    std::copy_n(all->second.f.end() - static_cast<std::ptrdiff_t>(last.f.size()), last.f.size(), last.f.begin());
    cache[s.name + ".before"] = std::move(last);
  }
}

// A block after the other: states of the first are those of the second, keys and values its cache. Then the head, over
// the last row.
Result<void> run_blocks(const std::vector<PromptBlock>& blocks, const Function& head, Context c) {
  Inputs cache;
  std::vector<float> last;
  for (const PromptBlock& b : blocks) {
    auto inputs = body_inputs(c.program, c.weights, b.rows);
    RETURN_IF_ERROR(inputs);
    add_masks(c.program, b.body, b.cached, *inputs);
    inputs->merge(cache);
    add_recurrent(b.body, *inputs);
    c.rows = static_cast<int64_t>(b.rows.size());
    auto outputs = run_function(b.body, std::move(*inputs), c, CancelToken(), false);
    RETURN_IF_ERROR(outputs);
    carry_states(c.program, *outputs, cache);
    const std::span<const float> row = std::as_const(outputs->at("hidden")).row(c.rows - 1);
    last.assign(row.begin(), row.end());
  }
  c.rows = 1;
  Inputs hidden{{"hidden", Tensor{.type = {DType::f32, {1, c.program.hidden}, 0}, .f = std::move(last)}}};
  RETURN_IF_ERROR(run_function(head, std::move(hidden), c, CancelToken(), false));
  return {};
}

}  // namespace

Result<std::vector<NpuLayer>> check_npu(const Program& program, const WeightSet& weights,
                                        const std::vector<int32_t>& tokens) {
  const auto blocks = prompt_blocks(program, tokens);
  RETURN_IF_ERROR(blocks);
  const auto head = lowered(program, "head", 1, 0);
  RETURN_IF_ERROR(head);
  const Labels masked = masked_steps(blocks->back().body), before = steps_before_layers(blocks->back().body);
  Layers exact(masked, before), npu(masked, before);
  for (Layers* seen : {&exact, &npu})
    RETURN_IF_ERROR(
        run_blocks(*blocks, *head, {.program = program, .weights = weights, .observer = seen, .npu = seen == &npu}));
  for (size_t i = 0; i < exact.all.size(); ++i) exact.all[i].relative_rms = difference(exact.last[i], npu.last[i]);
  return std::move(exact.all);
}

}  // namespace onw
