#include "passes/decompose_states.h"

#include <algorithm>
#include <utility>

#include "graph/ops.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

constexpr size_t kMostParts = 8;        // of one concat
constexpr double kLeastLogDecay = -88;  // e to the power of less is 0 in FP32

}  // namespace

Result<Value> StateDecomposer::lower(const Node& coarse, std::vector<Value> inputs) {
  current_ = &coarse;
  in_ = std::move(inputs);
  part_ = 0;
  error_.reset();
  const Value v = coarse.op == Op::conv_update ? conv_update() : gated_delta();
  if (error_) return Failure(*error_);
  return v;
}

const StateDecl& StateDecomposer::state() const {
  return program_.states[static_cast<size_t>(program_.state(current_->attributes.text("state")))];
}

// ---- nodes

Value StateDecomposer::node(Op op, std::vector<Value> inputs, Attributes attributes) {
  return append_part(to_, {*current_, part_++, error_}, op, std::move(inputs), std::move(attributes));
}

Value StateDecomposer::leaf(Op op, std::string label, Shape shape, std::vector<float> values) {
  to_.nodes.push_back({op, std::move(label), {}, {}, Type{DType::f32, std::move(shape), 0}, std::move(values)});
  return Value{static_cast<int32_t>(to_.nodes.size()) - 1};
}

Value StateDecomposer::matrix(int64_t rows, int64_t columns, const std::function<bool(int64_t, int64_t)>& one) {
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) values.push_back(one(r, c) ? 1.0f : 0.0f);
  return leaf(Op::constant, sub_label(*current_, fmt::format("{}.constant", part_++)), {rows, columns},
              std::move(values));
}

Value StateDecomposer::add(Value a, Value b) { return node(Op::add, {a, b}); }
Value StateDecomposer::subtract(Value a, Value b) { return node(Op::subtract, {a, b}); }
Value StateDecomposer::mul(Value a, Value b) { return node(Op::multiply, {a, b}); }
Value StateDecomposer::matmul(Value a, Value b, bool transposed) {
  return node(Op::matmul, {a, b}, {{"transpose_b", int64_t{transposed}}});
}
Value StateDecomposer::reshape(Value x, Shape to) {
  return shape(x) == to ? x : node(Op::reshape, {x}, {{"shape", std::move(to)}});
}
Value StateDecomposer::transpose(Value x, std::vector<int64_t> order) {
  return node(Op::transpose, {x}, {{"order", std::move(order)}});
}
Value StateDecomposer::slice(Value x, int64_t axis, int64_t begin, int64_t end) {
  if (begin == 0 && end == shape(x)[static_cast<size_t>(axis)]) return x;
  return node(Op::slice, {x}, {{"axis", axis}, {"begin", begin}, {"end", end}});
}
Value StateDecomposer::concat(std::vector<Value> parts, int64_t axis) {
  while (parts.size() > 1) {
    std::vector<Value> fewer;
    for (size_t i = 0; i < parts.size(); i += kMostParts) {
      const std::vector<Value> some(
          parts.begin() + static_cast<std::ptrdiff_t>(i),
          parts.begin() + static_cast<std::ptrdiff_t>(std::min(i + kMostParts, parts.size())));
      fewer.push_back(some.size() == 1 ? some[0] : node(Op::concat, some, {{"axis", axis}}));
    }
    parts = std::move(fewer);
  }
  return parts[0];
}

// ---- the convolution

// Tap after tap: row j of the weight's transpose times the rows so far behind the first one.
Value StateDecomposer::conv_update() {
  const StateDecl& s = state();
  Value all = in_[0];
  if (s.kernel > 1) {
    const Value before = leaf(Op::input, s.name + ".before", {s.kernel - 1, s.heads});
    all = node(Op::concat, {before, in_[0]}, {{"axis", int64_t{0}}});
  }
  outputs_.push_back({s.name + ".rows", all});
  const Value taps = transpose(in_[1], {1, 0});
  Value y = in_.size() > 2 ? reshape(in_[2], {1, s.heads}) : Value{};
  for (int64_t j = 0; j < s.kernel; ++j) {
    const Value part = mul(slice(all, 0, j, j + rows_), slice(taps, 0, j, j + 1));
    y = y.valid() ? add(part, y) : part;
  }
  return y;
}

// ---- the delta rule

Value StateDecomposer::rows_used() {
  if (!rows_used_.valid()) rows_used_ = leaf(Op::input, "rows_used", {rows_, 1});
  return rows_used_;
}

// [rows, key_heads, d] -> [heads, rows, d].
Value StateDecomposer::of_value_heads(Value x) {
  const StateDecl& s = state();
  const int64_t each = s.heads / s.key_heads, d = shape(x).back();
  x = transpose(x, {1, 0, 2});
  if (each == 1) return x;
  const bool tiled = current_->attributes.text("heads", "grouped") == "tiled";
  const int64_t outer = tiled ? 1 : s.key_heads, inner = tiled ? s.key_heads : 1;
  const Shape wide = tiled ? Shape{each, s.key_heads, rows_, d} : Shape{s.key_heads, each, rows_, d};
  x = node(Op::broadcast, {reshape(x, {outer, inner, rows_, d})}, {{"shape", wide}});
  return reshape(x, {s.heads, rows_, d});
}

Value StateDecomposer::gated_delta() {
  const StateDecl& s = state();
  const Value before = leaf(Op::input, s.name + ".before", {s.heads, s.head_dim, s.value_dim});
  const Value least = leaf(Op::constant, sub_label(*current_, fmt::format("{}.constant", part_++)), {1},
                           {static_cast<float>(kLeastLogDecay)});
  Value g = node(Op::maximum, {in_[3], least}), beta = in_[4];
  if (rows_ > kRecurrentRows) g = mul(g, rows_used()), beta = mul(beta, rows_used());
  const Delta d{.k = of_value_heads(in_[1]),
                .q = of_value_heads(in_[0]),
                .v = transpose(in_[2], {1, 0, 2}),
                .g = transpose(g, {1, 0}),
                .beta = transpose(beta, {1, 0})};
  std::vector<Value> out, u, after;
  Value now = before;
  const bool recurrent = rows_ <= kRecurrentRows;
  for (int64_t t = 0; t < rows_;) {
    const int64_t end = recurrent ? t + 1 : std::min(rows_, t + kDeltaChunkRows);
    const Part part = recurrent ? row(d, t, now) : chunk(d, t, end, now);
    out.push_back(part.out);
    u.push_back(part.u);
    if (recurrent || end == rows_) after.push_back(reshape(part.state, {1, s.heads, s.head_dim, s.value_dim}));
    now = part.state;
    t = end;
  }
  outputs_.push_back({s.name + ".after", concat(std::move(after), 0)});
  outputs_.push_back({s.name + ".k", in_[1]});
  outputs_.push_back({s.name + ".u", transpose(concat(std::move(u), 1), {1, 0, 2})});
  outputs_.push_back({s.name + ".g", g});
  return transpose(concat(std::move(out), 1), {1, 0, 2});
}

// S <- e^g S; S <- S + k (beta (v - S'k))'; out = S'q.
StateDecomposer::Part StateDecomposer::row(const Delta& d, int64_t t, Value before) {
  const int64_t heads = shape(before)[0], key_dim = shape(before)[1];
  const auto of_row = [&](Value x) { return slice(x, 1, t, t + 1); };
  const auto gate = [&](Value x) { return reshape(of_row(x), {heads, 1, 1}); };
  const Value k = of_row(d.k), decayed = mul(before, node(Op::exp, {gate(d.g)}));
  const Value u = mul(gate(d.beta), subtract(of_row(d.v), matmul(k, decayed)));
  const Value now = add(decayed, mul(reshape(k, {heads, key_dim, 1}), u));
  return {matmul(of_row(d.q), now), u, now};
}

// With D[i, j] = e^(g_{j+1} + ... + g_i) and e_i = e^(g_0 + ... + g_i) within the chunk:
//   (I + A) u = beta (v - e (k S)), A[i, j] = beta_i D[i, j] k_i.k_j for j < i
//   out_i = e_i (q_i S) + sum over j <= i of D[i, j] (q_i.k_j) u_j
//   S <- e_last S + sum over j of D[last, j] k_j u_j'
// Every sum of logarithms is one of its own, by a product with zeros and ones: a difference of two running sums would
// have the error of the larger.
StateDecomposer::Part StateDecomposer::chunk(const Delta& d, int64_t begin, int64_t end, Value before) {
  const int64_t n = end - begin, heads = shape(before)[0];
  const auto of_chunk = [&](Value x) { return slice(x, 1, begin, end); };
  const Value k = of_chunk(d.k), q = of_chunk(d.q), beta = reshape(of_chunk(d.beta), {heads, n, 1});
  const Value sums = matrix(n, n * n + n, [n](int64_t l, int64_t pair) {
    return pair < n * n ? l > pair % n && l <= pair / n : l <= pair - n * n;
  });
  const Value decays = node(Op::exp, {matmul(of_chunk(d.g), sums)});
  const Value between = reshape(slice(decays, 1, 0, n * n), {heads, n, n});
  const Value since = reshape(slice(decays, 1, n * n, n * n + n), {heads, n, 1});
  const auto kept = [&](bool own) {
    return mul(between, matrix(n, n, [own](int64_t i, int64_t j) { return j < i || (own && j == i); }));
  };
  const Value a = mul(mul(matmul(k, k, true), kept(false)), beta);
  const Value wanted = mul(beta, subtract(of_chunk(d.v), mul(since, matmul(k, before))));
  const Value u = n == 1 ? wanted : matmul(inverse(a), wanted);
  const Value out = add(mul(since, matmul(q, before)), matmul(mul(matmul(q, k, true), kept(true)), u));
  const Value until_end = transpose(slice(between, 1, n - 1, n), {0, 2, 1});
  const Value now = add(mul(before, slice(since, 1, n - 1, n)), matmul(transpose(mul(k, until_end), {0, 2, 1}), u));
  return {out, u, now};
}

// (I + A)^-1 of strictly lower triangular A [heads, n, n], exactly: the inverse of blocks of b on the diagonal, X,
// gives that of blocks of 2b, X - X B X, B being what of A stands in their lower left quarters. The series I - A + A^2
// - ... would cancel where keys are alike.
Value StateDecomposer::inverse(Value lower) {
  const int64_t n = shape(lower).back();
  Value x = matrix(n, n, [](int64_t i, int64_t j) { return i == j; });
  for (int64_t b = 1; b < n; b *= 2) {
    const Value quarter = mul(lower, matrix(n, n, [b](int64_t i, int64_t j) {
                                return i / (2 * b) == j / (2 * b) && i / b % 2 == 1 && j / b % 2 == 0;
                              }));
    x = subtract(x, b == 1 ? quarter : matmul(matmul(x, quarter), x));
  }
  return x;
}

}  // namespace onw
