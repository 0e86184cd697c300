#include "passes/legalize_npu.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/ops.h"
#include "graph/shape_rules.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

constexpr double kLargest = 65504;  // of FP16
constexpr int64_t kColumns = 256;
constexpr double kPeak = 16;        // what the largest value of a row becomes before it is squared
constexpr int64_t kGroup = 128;     // squares up to kPeak^2, this many: 32768
constexpr double kFloor = 0x1p-11;  // 16 / this is 32768

class Legalizer {
 public:
  explicit Legalizer(const Function& from) : from_(from), to_(from) {}

  Result<Function> run() {
    types_.clear();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      const Value v{static_cast<int32_t>(i)};
      current_ = &from_.nodes[i];
      part_ = 0;
      if (const Value now = rewritten(*current_); now.valid()) {
        to_.replace(v, now);
      } else {
        keep(to_.copy(v), current_->type);
        if (current_->op == Op::input && current_->label.ends_with(".mask"))
          to_.replace(v, node(Op::maximum, {to_.map(v), constant(-kLargest / 2)}));
      }
      if (error_) return Failure(*error_);
    }
    return to_.finish();
  }

 private:
  Value keep(Value v, const Type& type) {
    types_.resize(static_cast<size_t>(v.id) + 1);
    types_.back() = type;
    return v;
  }
  const Type& type(Value v) const { return types_[static_cast<size_t>(v.id)]; }
  Value in(size_t i) const { return to_.map(current_->inputs[i]); }
  const Node& from(Value v) const { return from_.node(v); }

  Value node(Op op, std::vector<Value> inputs, Attributes attributes = {}) {
    std::vector<Type> types;
    for (const Value v : inputs) types.push_back(type(v));
    auto t = result_type(op, types, attributes);
    if (!t) {
      if (!error_) error_ = Error{t.error().code, fmt::format("{}: {}", current_->label, t.error().message)};
      t = Type{DType::f32, {1, 1}, 0};
    }
    const std::string label = sub_label(*current_, fmt::format("npu{}.{}", part_++, name(op)));
    return keep(to_.append({op, label, std::move(inputs), std::move(attributes), *t, {}}), *t);
  }
  Value constant(double x) {
    const Type t{DType::f32, {1}, 0};
    const std::string label = sub_label(*current_, fmt::format("npu{}.constant", part_++));
    return keep(to_.append({Op::constant, label, {}, {}, t, {static_cast<float>(x)}}), t);
  }
  Value mul(Value a, Value b) { return node(Op::multiply, {a, b}); }
  Value row_sum(Value x) { return node(Op::reduce_sum, {x}, {{"axis", int64_t{-1}}}); }
  Value row_largest(Value x, double least) {
    const Value amax = node(Op::reduce_max, {node(Op::abs, {x})}, {{"axis", int64_t{-1}}});
    return node(Op::maximum, {amax, constant(least)});
  }

  Value rewritten(const Node& n) {
    if (n.op == Op::divide) return norm(n);
    if (n.op == Op::matmul && runs_over_codes(n)) return raw_codes(n, {});
    if (n.op == Op::matmul && wide(n)) return split(in(0), in(1), n.attributes);
    if (n.op != Op::multiply) return {};
    const Value y = scaled_codes(n);
    return y.valid() ? y : cap_before_product(n);
  }

  // ---- x / sqrt(sum(x * x) * c + eps)

  std::optional<double> scalar(Value v) const {
    const Node& n = from(v);
    if (n.op != Op::constant || n.constant.size() != 1) return std::nullopt;
    return n.constant[0];
  }

  std::optional<double> eps_of_norm(const Node& divide) const {
    const Value x = divide.inputs[0];
    const Node& root = from(divide.inputs[1]);
    if (root.op != Op::sqrt) return std::nullopt;
    const Node& sum = from(root.inputs[0]);
    if (sum.op != Op::add || !scalar(sum.inputs[1])) return std::nullopt;
    const Node& mean = from(sum.inputs[0]);
    if (mean.op != Op::multiply || !scalar(mean.inputs[1])) return std::nullopt;
    const Node& total = from(mean.inputs[0]);
    if (total.op != Op::reduce_sum) return std::nullopt;
    const Node& square = from(total.inputs[0]);
    if (square.op != Op::multiply || square.inputs[0] != x || square.inputs[1] != x) return std::nullopt;
    return scalar(sum.inputs[1]);
  }

  // The mean over the last axis of squares that are at most kPeak^2, no partial sum beyond 32768.
  Value mean(Value squares) {
    const Shape whole = type(squares).shape;
    const int64_t n = whole.back();
    int64_t group = std::min(n, kGroup);
    while (n % group != 0) --group;
    Shape grouped = whole;
    grouped.back() = n / group;
    grouped.push_back(group);
    const Value parts =
        mul(row_sum(node(Op::reshape, {squares}, {{"shape", grouped}})), constant(1.0 / static_cast<double>(group)));
    grouped.pop_back();
    if (n == group) return node(Op::reshape, {parts}, {{"shape", grouped}});
    return mean(node(Op::reshape, {parts}, {{"shape", grouped}}));
  }

  static bool groups_well(int64_t n) {
    for (int64_t d = 2; d <= kGroup; ++d)
      while (n % d == 0) n /= d;
    return n == 1;
  }

  Value norm(const Node& divide) {
    const auto eps = eps_of_norm(divide);
    if (!eps || !groups_well(type(in(0)).last())) return {};
    const Value x = in(0);
    const double root = std::sqrt(*eps);
    const Value ratio = node(Op::divide, {constant(kPeak), row_largest(x, std::max(kFloor, root * kPeak / 128))});
    const Value y = mul(x, ratio), small = mul(ratio, constant(std::max(root, 0x1p-14)));
    const Value sum = node(Op::add, {mean(mul(y, y)), mul(small, small)});
    return node(Op::divide, {y, node(Op::sqrt, {sum})});
  }

  // ---- products

  bool at_run_time(Value v) const { return from(v).op != Op::weight && from(v).op != Op::constant; }

  bool wide(const Node& n) const {
    return n.attributes.integer("transpose_b") == 0 && n.type.last() > kColumns && at_run_time(n.inputs[0]) &&
           at_run_time(n.inputs[1]);
  }

  Value split(Value a, Value b, const Attributes& attributes) {
    const int64_t columns = type(b).last(), axis = static_cast<int64_t>(type(b).shape.size()) - 1;
    std::vector<Value> parts;
    for (int64_t at = 0; at < columns; at += kColumns) {
      const Value part =
          node(Op::slice, {b}, {{"axis", axis}, {"begin", at}, {"end", std::min(columns, at + kColumns)}});
      parts.push_back(node(Op::matmul, {a, part}, attributes));
    }
    return node(Op::concat, parts, {{"axis", static_cast<int64_t>(current_->type.shape.size()) - 1}});
  }

  bool codes(Value v) const {
    const Node& n = from(v);
    if (n.op == Op::input) return n.type.dtype == DType::i8;
    return (n.op == Op::convert || n.op == Op::reshape || n.op == Op::transpose || n.op == Op::slice) &&
           codes(n.inputs[0]);
  }
  bool runs_over_codes(const Node& n) const { return codes(n.inputs[1]) && !codes(n.inputs[0]); }

  // 127 codes' worth for each of k inputs stays below the largest number; a power of two, so nothing is rounded. The
  // codes' scale, where one follows, comes before what was divided out: without it the product may not be held at all.
  Value raw_codes(const Node& product, Value scale) {
    const Value x = to_.map(product.inputs[0]), codes = to_.map(product.inputs[1]);
    const double most = 127.0 * static_cast<double>(type(x).last());
    const double share = std::min(1.0, std::exp2(std::floor(std::log2(kLargest / most))));
    const Value largest = row_largest(x, 0x1p-13);
    Value y = node(Op::divide, {x, largest});
    if (share < 1) y = mul(y, constant(share));
    y = wide(product) ? split(y, codes, product.attributes) : node(Op::matmul, {y, codes}, product.attributes);
    if (scale.valid()) y = mul(y, scale);
    y = mul(y, largest);
    return share < 1 ? mul(y, constant(1 / share)) : y;
  }
  Value scaled_codes(const Node& n) {
    const Node& product = from(n.inputs[0]);
    if (n.inputs[0] == n.inputs[1] || product.op != Op::matmul || !runs_over_codes(product)) return {};
    return raw_codes(product, in(1));
  }

  // tanh(x w * (1 / cap)) -> tanh((x * (1 / cap)) w)
  Value cap_before_product(const Node& n) {
    if (n.inputs[0] == n.inputs[1] || !scalar(n.inputs[1]) || from(n.inputs[0]).op != Op::matmul) return {};
    const Node& product = from(n.inputs[0]);
    if (from(product.inputs[1]).op != Op::weight || !feeds_tanh()) return {};
    const Value x = mul(to_.map(product.inputs[0]), in(1));
    return node(Op::matmul, {x, to_.map(product.inputs[1])}, product.attributes);
  }
  bool feeds_tanh() const {
    const Value me{static_cast<int32_t>(current_ - from_.nodes.data())};
    return std::ranges::any_of(from_.nodes, [&](const Node& n) { return n.op == Op::tanh && n.inputs[0] == me; });
  }

  const Function& from_;
  Rewriter to_;
  std::vector<Type> types_;
  const Node* current_ = nullptr;
  int part_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Function> legalize_npu(const Function& function) { return Legalizer(function).run(); }

}  // namespace onw
