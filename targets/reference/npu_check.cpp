#include "targets/reference/npu_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "graph/ops.h"
#include "passes/decompose.h"
#include "passes/legalize_npu.h"
#include "targets/op_observer.h"
#include "targets/reference/body_inputs.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/npu.h"

namespace onw {
namespace {

using namespace reference;

constexpr float kMasked = -1e30f;

// Ranges of every layer, and the values that it ends with.
class Layers final : public OpObserver {
 public:
  explicit Layers(std::set<std::string, std::less<>> masked) : masked_(std::move(masked)) {}

  void seen(const SeenOp& op) override {
    if (op.values == nullptr || op.kind == "input" || op.kind == "constant" || masked_.contains(op.label)) return;
    const size_t slash = op.label.find('/');
    const std::string name = slash == op.label.npos ? "head" : std::string(op.label.substr(0, slash));
    if (all.empty() || all.back().name != name) all.push_back({.name = name}), last.emplace_back();
    const std::span values(op.values, static_cast<size_t>(op.rows * op.width));
    last.back().assign(values.begin(), values.end());
    for (const float x : values) count(all.back(), std::fabs(x));
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

  std::set<std::string, std::less<>> masked_;
};

// Steps whose results hold a mask: from its input to the softmax.
std::set<std::string, std::less<>> masked_steps(const Function& f) {
  std::set<std::string, std::less<>> found;
  for (const Node& n : f.nodes) {
    const bool mask = n.op == Op::input && n.label.ends_with(".mask");
    const bool follows = std::ranges::any_of(n.inputs, [&](Value v) { return found.contains(f.node(v).label); });
    if (mask || (follows && n.op != Op::softmax)) found.insert(n.label);
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

void add_masks(const Function& body, Inputs& inputs) {
  for (const Node& n : body.nodes) {
    if (n.op != Op::input || !n.label.ends_with(".mask")) continue;
    Tensor mask = make_tensor(n.type, 0);
    for (int64_t r = 0; r < mask.rows(); ++r)
      for (int64_t p = r + 1; p < n.type.last(); ++p) mask.row(r)[static_cast<size_t>(p)] = kMasked;
    inputs[n.label] = std::move(mask);
  }
}

Result<Function> lowered(const Program& p, std::string_view name, int64_t rows) {
  const Function* f = p.function(name);
  if (f == nullptr) return error(Code::invalid_argument, "the program has no function '{}'", name);
  const auto primitives = decompose(p, *f, {.rows = rows});
  RETURN_IF_ERROR(primitives);
  return legalize_npu(*primitives);
}

}  // namespace

Result<std::vector<NpuLayer>> check_npu(const Program& program, const WeightSet& weights,
                                        const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const auto body = lowered(program, "body", count), head = lowered(program, "head", 1);
  RETURN_IF_ERROR(body);
  RETURN_IF_ERROR(head);
  std::vector<Row> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(text_row(0, i, tokens[static_cast<size_t>(i)], false));
  auto inputs = body_inputs(program, weights, rows);
  RETURN_IF_ERROR(inputs);
  add_masks(*body, *inputs);

  Layers exact(masked_steps(*body)), npu(masked_steps(*body));
  for (Layers* seen : {&exact, &npu}) {
    Context c{.program = program, .weights = weights, .rows = count, .observer = seen, .npu = seen == &npu};
    auto hidden = run_function(*body, *inputs, c, CancelToken(), false);
    RETURN_IF_ERROR(hidden);
    const std::span<const float> row = std::as_const(hidden->at("hidden")).row(count - 1);
    Inputs last{{"hidden", Tensor{.type = {DType::f32, {1, program.hidden}, 0}, .f = {row.begin(), row.end()}}}};
    c.rows = 1;
    RETURN_IF_ERROR(run_function(*head, std::move(last), c, CancelToken(), false));
  }
  for (size_t i = 0; i < exact.all.size(); ++i) exact.all[i].relative_rms = difference(exact.last[i], npu.last[i]);
  return std::move(exact.all);
}

}  // namespace onw
