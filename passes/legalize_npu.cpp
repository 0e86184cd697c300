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
constexpr double kTiny = 0x1p-14;   // what is smaller is zero
constexpr double kShares = 512;     // codes of 127, weighed by shares that sum to this, stay below the largest number

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
        if (current_->op == Op::input && (current_->label == "mask" || current_->label.ends_with(".mask")))
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

  // ---- x / sqrt(mean(x * x) + eps), x / sqrt(sum(x * x) + eps); x may be u - mean(u)

  std::optional<double> scalar(Value v) const {
    const Node& n = from(v);
    if (n.op != Op::constant || n.constant.size() != 1) return std::nullopt;
    return n.constant[0];
  }

  // What is summed to make v, where v is a sum over the last axis, or with `mean` the mean.
  Value summed(Value v, bool mean) const {
    const Node* n = &from(v);
    if (mean) {
      if (n->op != Op::multiply || !scalar(n->inputs[1])) return {};
      const double factor = *scalar(n->inputs[1]);
      n = &from(n->inputs[0]);
      if (n->op != Op::reduce_sum || std::fabs(factor * static_cast<double>(from(n->inputs[0]).type.last()) - 1) > 1e-3)
        return {};
    }
    const bool last = n->op == Op::reduce_sum && n->attributes.integer("axis", -1) == -1;
    return last ? n->inputs[0] : Value{};
  }

  struct Norm {
    double eps = 0;    // beside the mean
    bool sum = false;  // the sum of squares stood there
    Value centred;     // u of u - mean(u)
  };

  std::optional<Norm> norm_of(const Node& divide) const {
    const Value x = divide.inputs[0];
    const Node& root = from(divide.inputs[1]);
    if (root.op != Op::sqrt) return std::nullopt;
    const Node& both = from(root.inputs[0]);
    if (both.op != Op::add || !scalar(both.inputs[1])) return std::nullopt;
    const Value mean = summed(both.inputs[0], true), sum = summed(both.inputs[0], false);
    if (!mean.valid() && !sum.valid()) return std::nullopt;
    const Node& square = from(mean.valid() ? mean : sum);
    if (square.op != Op::multiply || square.inputs[0] != x || square.inputs[1] != x) return std::nullopt;
    Norm norm{*scalar(both.inputs[1]), !mean.valid(), {}};
    if (norm.sum) norm.eps /= static_cast<double>(from(x).type.last());
    if (const Node& n = from(x); n.op == Op::subtract && summed(n.inputs[1], true) == n.inputs[0])
      norm.centred = n.inputs[0];
    return norm;
  }

  // Whether a mean of n values can be one of means of at most 128.
  static bool groups_well(int64_t n) {
    for (int64_t d = 2; d <= kGroup; ++d)
      while (n % d == 0) n /= d;
    return n == 1;
  }

  // The mean over the last axis of values of at most kPeak^2, no partial sum beyond 32768.
  Value mean(Value values) {
    const Shape whole = type(values).shape;
    const int64_t n = whole.back();
    if (!groups_well(n)) return padded_mean(values);
    int64_t group = std::min(n, kGroup);
    while (n % group != 0) --group;
    Shape grouped = whole;
    grouped.back() = n / group;
    grouped.push_back(group);
    const Value parts =
        mul(row_sum(node(Op::reshape, {values}, {{"shape", grouped}})), constant(1.0 / static_cast<double>(group)));
    grouped.pop_back();
    if (n == group) return node(Op::reshape, {parts}, {{"shape", grouped}});
    return mean(node(Op::reshape, {parts}, {{"shape", grouped}}));
  }

  // With zeros behind the values, up to a width that groups well.
  Value padded_mean(Value values) {
    const int64_t n = type(values).last(), axis = static_cast<int64_t>(type(values).shape.size()) - 1;
    int64_t pad = 1;
    while (!groups_well(n + pad)) ++pad;
    const Value some = node(Op::slice, {values}, {{"axis", axis}, {"begin", int64_t{0}}, {"end", pad}});
    const Value wide = node(Op::concat, {values, mul(some, constant(0))}, {{"axis", axis}});
    return mul(mean(wide), constant(static_cast<double>(n + pad) / static_cast<double>(n)));
  }

  // Rows are divided by their largest value first. `root`, the root of eps, is multiplied with what they are; it is
  // no more than 128 then.
  Value norm(const Node& divide) {
    const auto norm = norm_of(divide);
    if (!norm) return {};
    Value x = in(0), root = constant(std::max(std::sqrt(norm->eps), kTiny)), ratio;
    const auto scale = [&](Value least) {
      ratio = node(Op::divide, {constant(kPeak), node(Op::maximum, {row_largest(x, kFloor), least})});
      root = mul(ratio, root);
      return mul(x, ratio);
    };
    if (norm->centred.valid()) {
      x = to_.map(norm->centred);
      x = scale(mul(root, constant(kPeak / 128)));
      x = node(Op::subtract, {x, mean(x)});
    }
    const Value y = scale(mul(root, constant(kPeak / 128)));
    const Value result = node(Op::divide, {y, node(Op::sqrt, {node(Op::add, {mean(mul(y, y)), mul(root, root)})})});
    return norm->sum ? mul(result, constant(1 / std::sqrt(static_cast<double>(type(y).last())))) : result;
  }

  // ---- products

  bool at_run_time(Value v) const { return from(v).op != Op::weight && from(v).op != Op::constant; }

  // Whether v weighs values: exp or softmax, and what only moves or scales it.
  bool weighs(Value v) const {
    const Node& n = from(v);
    if (n.op == Op::exp || n.op == Op::softmax) return true;
    return (n.op == Op::multiply || n.op == Op::reshape || n.op == Op::transpose || n.op == Op::slice) &&
           weighs(n.inputs[0]);
  }

  bool wide(const Node& n) const {
    if (n.type.last() <= kColumns || !at_run_time(n.inputs[0]) || !at_run_time(n.inputs[1])) return false;
    return n.attributes.integer("transpose_b") == 0 || weighs(n.inputs[0]);
  }

  Value split(Value a, Value b, const Attributes& attributes) {
    const int64_t rank = static_cast<int64_t>(type(b).shape.size()), columns = current_->type.last(),
                  axis = attributes.integer("transpose_b") == 0 ? rank - 1 : rank - 2;
    std::vector<Value> parts;
    for (int64_t at = 0; at < columns; at += kColumns) {
      const Value part =
          node(Op::slice, {b}, {{"axis", axis}, {"begin", at}, {"end", std::min(columns, at + kColumns)}});
      parts.push_back(node(Op::matmul, {a, part}, attributes));
    }
    return node(Op::concat, parts, {{"axis", static_cast<int64_t>(current_->type.shape.size()) - 1}});
  }

  // The largest code of run time that v is made of; 0 where it is none.
  double largest_code(Value v) const {
    const Node& n = from(v);
    if (n.op == Op::input) return n.type.dtype == DType::i8 ? 127 : n.type.dtype == DType::i4 ? 8 : 0;
    const bool moves = n.op == Op::convert || n.op == Op::reshape || n.op == Op::transpose || n.op == Op::slice;
    return moves ? largest_code(n.inputs[0]) : 0;
  }
  bool runs_over_codes(const Node& n) const { return largest_code(n.inputs[1]) > 0 && largest_code(n.inputs[0]) == 0; }

  // |y| <= 1 sums to at most so many codes' worth of 127 (of 8) as there are inputs; where that is beyond the largest
  // number, rows are divided by what they sum to as well: a constant would leave nothing of the small values behind a
  // large one. The codes' scale, where one follows, comes before what was divided out: without it the product may not
  // be held.
  Value raw_codes(const Node& product, Value scale) {
    const Value x = to_.map(product.inputs[0]), codes = to_.map(product.inputs[1]);
    const bool many = largest_code(product.inputs[1]) * static_cast<double>(type(x).last()) > kLargest;
    const Value largest = row_largest(x, 0x1p-13);
    Value y = node(Op::divide, {x, largest}), shares;
    if (many) {
      shares = node(Op::maximum, {row_sum(node(Op::abs, {y})), constant(kShares)});
      y = mul(y, node(Op::divide, {constant(kShares), shares}));
    }
    y = wide(product) ? split(y, codes, product.attributes) : node(Op::matmul, {y, codes}, product.attributes);
    if (scale.valid()) y = mul(y, scale);
    y = mul(y, largest);
    return many ? mul(y, mul(shares, constant(1 / kShares))) : y;
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
