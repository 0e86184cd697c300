#include "passes/decompose.h"

#include <bit>
#include <cmath>
#include <map>
#include <numbers>

#include "graph/ops.h"
#include "passes/decompose_states.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

class Decomposer {
 public:
  Decomposer(const Program& program, const Function& from, const DecomposeOptions& options)
      : program_(program),
        from_(from),
        options_(options),
        recurrent_(program, to_, options.rows),
        map_(from.nodes.size()) {
    to_.name = from.name;
  }

  Result<Function> run() {
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      current_ = &from_.nodes[i];
      part_ = 0;
      const Value v = lower(*current_);
      if (error_) return Failure(*error_);
      map_[i] = v;
    }
    for (const Output& o : from_.outputs) to_.outputs.push_back({o.name, map(o.value)});
    to_.outputs.insert(to_.outputs.end(), states_.begin(), states_.end());
    to_.outputs.insert(to_.outputs.end(), recurrent_.outputs().begin(), recurrent_.outputs().end());
    return std::move(to_);
  }

 private:
  using Values = std::vector<Value>;

  Value map(Value v) const { return map_[static_cast<size_t>(v.id)]; }
  Value in(size_t i) const { return map(current_->inputs[i]); }
  const Type& type(Value v) const { return to_.type(v); }

  Value node(Op op, Values inputs, Attributes attributes = {}) {
    return append_part(to_, {*current_, part_++, error_}, op, std::move(inputs), std::move(attributes));
  }

  Value leaf(Op op, std::string label, Shape shape, std::vector<float> values = {}, DType dtype = DType::f32) {
    to_.nodes.push_back({op, std::move(label), {}, {}, Type{dtype, std::move(shape), 0}, std::move(values)});
    return Value{static_cast<int32_t>(to_.nodes.size()) - 1};
  }
  Value constant(double x) {
    return leaf(Op::constant, sub_label(*current_, fmt::format("{}.constant", part_++)), {1}, {static_cast<float>(x)});
  }

  Value add(Value a, Value b) { return node(Op::add, {a, b}); }
  Value mul(Value a, Value b) { return node(Op::multiply, {a, b}); }
  Value mul(Value a, double b) { return mul(a, constant(b)); }
  Value div(Value a, Value b) { return node(Op::divide, {a, b}); }
  Value unary(Op op, Value a) { return node(op, {a}); }
  Value reshape(Value x, Shape shape) { return node(Op::reshape, {x}, {{"shape", std::move(shape)}}); }
  Value transpose(Value x, std::vector<int64_t> order) {
    return node(Op::transpose, {x}, {{"order", std::move(order)}});
  }
  Value slice(Value x, int64_t axis, int64_t begin, int64_t end) {
    return node(Op::slice, {x}, {{"axis", axis}, {"begin", begin}, {"end", end}});
  }
  Value matmul(Value a, Value b, bool transposed) {
    return node(Op::matmul, {a, b}, {{"transpose_b", int64_t{transposed}}});
  }

  Shape fixed(Shape shape) const {
    for (int64_t& d : shape)
      if (d == kRows) d = options_.rows;
    return shape;
  }

  // ---- one op each

  Value linear(size_t x, size_t w, size_t bias) {
    const Value y = matmul(in(x), in(w), true);
    return bias < current_->inputs.size() ? add(y, in(bias)) : y;
  }

  Value mean_of_squares(Value x) {
    return mul(node(Op::reduce_sum, {mul(x, x)}, {{"axis", int64_t{-1}}}), 1.0 / static_cast<double>(type(x).last()));
  }

  Value rms_norm() {
    const Value x = in(0);
    const Value root = unary(Op::sqrt, add(mean_of_squares(x), constant(current_->attributes.number("eps"))));
    const Value y = div(x, root);
    return current_->inputs.size() > 1 ? mul(y, in(1)) : y;
  }

  Value layer_norm() {
    const Value x = in(0);
    const Value mean =
        mul(node(Op::reduce_sum, {x}, {{"axis", int64_t{-1}}}), 1.0 / static_cast<double>(type(x).last()));
    const Value d = node(Op::subtract, {x, mean});
    const Value y =
        mul(div(d, unary(Op::sqrt, add(mean_of_squares(d), constant(current_->attributes.number("eps"))))), in(1));
    return current_->inputs.size() > 2 ? add(y, in(2)) : y;
  }

  Value l2_norm() {
    const Value x = in(0);
    const Value sum = node(Op::reduce_sum, {mul(x, x)}, {{"axis", int64_t{-1}}});
    return div(x, unary(Op::sqrt, add(sum, constant(current_->attributes.number("eps")))));
  }

  // Blocks of b1 * b2 as a Kronecker product: rows of b2 times one matrix, columns of b1 times the other.
  Value hadamard() {
    const int64_t block = current_->attributes.integer("block"), n = type(in(0)).last();
    int64_t b1 = 1;
    while (b1 * b1 < block) b1 *= 2;
    const int64_t b2 = block / b1, blocks = n / block;
    const bool inverse = current_->attributes.integer("inverse") != 0;
    Value z = inverse ? in(0) : mul(in(0), in(1));
    z = matmul(reshape(z, {options_.rows, blocks, b1, b2}), sylvester(b2), false);
    z = matmul(transpose(z, {0, 1, 3, 2}), sylvester(b1), false);
    z = reshape(transpose(z, {0, 1, 3, 2}), {options_.rows, n});
    return inverse ? mul(z, in(1)) : z;
  }

  // The normalised matrix of Walsh and Hadamard, [n, n].
  Value sylvester(int64_t n) {
    const auto one = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
    std::vector<float> values(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < n; ++k)
        values[static_cast<size_t>(i * n + k)] = std::popcount(static_cast<uint64_t>(i & k)) % 2 == 1 ? -one : one;
    return leaf(Op::constant, sub_label(*current_, fmt::format("{}.sylvester", part_++)), {n, n}, std::move(values));
  }

  Value rope() {
    const Value x = in(0);
    const int64_t half = type(in(1)).last(), d = type(x).last();
    const Value cos = reshape(in(1), {options_.rows, 1, half}), sin = reshape(in(2), {options_.rows, 1, half});
    const Value a = slice(x, 2, 0, half), b = slice(x, 2, half, 2 * half);
    const Value first = node(Op::subtract, {mul(a, cos), mul(b, sin)});
    const Value second = add(mul(b, cos), mul(a, sin));
    if (2 * half == d) return node(Op::concat, {first, second}, {{"axis", int64_t{2}}});
    return node(Op::concat, {first, second, slice(x, 2, 2 * half, d)}, {{"axis", int64_t{2}}});
  }

  // max(x, 0) + log(1 + t), t = e^-|x|. The logarithm is 2 atanh(s), s = t / (2 + t) <= 1/3, by its series up to s^13
  // (2e-8 of it remains): no 1 + t loses a small t in FP16, and no op is needed for it.
  Value softplus(Value x) {
    const Value t = unary(Op::exp, mul(unary(Op::abs, x), -1));
    const Value s = div(t, add(t, constant(2))), z = mul(s, s);
    Value sum = constant(1.0 / 13);
    for (const double n : {11.0, 9.0, 7.0, 5.0, 3.0, 1.0}) sum = add(mul(sum, z), constant(1 / n));
    return add(node(Op::maximum, {x, constant(0)}), mul(mul(s, 2), sum));
  }

  Value activate(std::string_view kind, Value x) {
    if (kind == "sigmoid") return unary(Op::sigmoid, x);
    if (kind == "relu") return node(Op::maximum, {x, constant(0)});
    if (kind == "gelu") return mul(mul(x, 0.5), add(unary(Op::erf, mul(x, std::numbers::sqrt2 / 2)), constant(1)));
    if (kind == "gelu_tanh") {
      const Value cubic = add(mul(mul(mul(x, x), x), 0.044715), x);
      return mul(mul(x, 0.5), add(unary(Op::tanh, mul(cubic, std::sqrt(2 / std::numbers::pi))), constant(1)));
    }
    if (kind == "softplus") return softplus(x);
    return mul(x, unary(Op::sigmoid, x));  // silu
  }

  // gpt-oss: (clamp(up) + 1) * g * sigmoid(alpha * g), g = min(gate, limit).
  Value swiglu_clamped(Value gate, Value up) {
    const double limit = current_->attributes.number("limit", 7), alpha = current_->attributes.number("alpha", 1.702);
    const Value g = node(Op::minimum, {gate, constant(limit)});
    const Value u = node(Op::maximum, {node(Op::minimum, {up, constant(limit)}), constant(-limit)});
    return mul(add(u, constant(1)), mul(g, unary(Op::sigmoid, mul(g, alpha))));
  }

  Value gated(Value gate, Value up) {
    const std::string_view kind = current_->attributes.text("activation");
    return kind == "swiglu_clamped" ? swiglu_clamped(gate, up) : mul(activate(kind, gate), up);
  }

  Value linear_gated() {
    const Value both = linear(0, 1, 2);
    const int64_t half = type(both).last() / 2;
    return gated(slice(both, 1, 0, half), slice(both, 1, half, 2 * half));
  }

  // x -> round(x * 127 / amax) * amax / 127 per group; a group of zeros stays zero.
  Value quantize(Value x) {
    const int64_t group = current_->attributes.integer("group"), n = type(x).last();
    const Value grouped = reshape(x, {options_.rows, n / group, group});
    const Value amax = node(Op::reduce_max, {unary(Op::abs, grouped)}, {{"axis", int64_t{-1}}});
    const Value tiny = node(Op::less, {amax, constant(0x1p-100)});
    const Value inverse = node(Op::select, {tiny, constant(0), div(constant(127), amax)});
    const Value codes = unary(Op::round, mul(grouped, inverse));
    return reshape(mul(codes, mul(amax, 1.0 / 127)), {options_.rows, n});
  }

  Value soft_cap(Value x, double cap) { return mul(unary(Op::tanh, mul(x, 1 / cap)), cap); }

  Value kv_write() {
    const auto state = std::string(current_->attributes.text("state"));
    if (options_.chunks) {
      states_.push_back({state + ".k_new", in(0)});
      states_.push_back({state + ".v_new", in(1)});
      written_[state] = {transpose(as_kept(in(0)), {1, 0, 2}), transpose(as_kept(in(1)), {1, 0, 2})};
      return in(0);
    }
    const Value k = transpose(in(0), {1, 0, 2}), v = transpose(in(1), {1, 0, 2});
    states_.push_back({state + ".k_new", k});
    states_.push_back({state + ".v_new", v});
    written_[state] = {k, v};
    return k;
  }

  // [heads of one kv head] x rows side by side, so that one product serves a group.
  Value attention() {
    const auto state = std::string(current_->attributes.text("state"));
    const auto found = written_.find(state);
    if (found == written_.end() || current_->attributes.integer("bidirectional") != 0) {
      error_ = Error{
          Code::unsupported,
          fmt::format("{}: attention over a cache that no step before writes, or bidirectional", current_->label)};
      return {};
    }
    const StateDecl& s = program_.states[static_cast<size_t>(program_.state(state))];
    if (options_.chunks) return attention_over_chunks(s, found->second.first, found->second.second);
    const int64_t rows = options_.rows, heads = type(in(0)).shape[1], each = heads / s.heads,
                  seen = options_.cache_tokens + rows;
    Value k = found->second.first, v = found->second.second;
    if (options_.cache_tokens > 0) {
      const Value old_k = input(state + ".k", DType::f32, {s.heads, options_.cache_tokens, s.head_dim});
      const Value old_v = input(state + ".v", DType::f32, {s.heads, options_.cache_tokens, s.value_dim});
      k = node(Op::concat, {old_k, k}, {{"axis", int64_t{1}}});
      v = node(Op::concat, {old_v, v}, {{"axis", int64_t{1}}});
    }
    const Value mask = input(state + ".mask", DType::f32, {rows, seen});
    // Scaled before the product, which FP16 may not hold otherwise.
    const Value scaled = mul(in(0), current_->attributes.number("scale"));
    const Value q = reshape(transpose(scaled, {1, 0, 2}), {s.heads, each * rows, s.head_dim});
    Value scores = matmul(q, k, true);
    if (const double cap = current_->attributes.number("soft_cap"); cap > 0) scores = soft_cap(scores, cap);
    scores = add(reshape(scores, {heads, rows, seen}), mask);
    if (current_->inputs.size() > 1) {
      const Value sinks =
          node(Op::broadcast, {reshape(in(1), {heads, 1, 1})}, {{"shape", std::vector<int64_t>{heads, rows, 1}}});
      scores = node(Op::concat, {scores, sinks}, {{"axis", int64_t{2}}});
    }
    Value p = unary(Op::softmax, scores);
    if (current_->inputs.size() > 1) p = slice(p, 2, 0, seen);
    const Value o = matmul(reshape(p, {s.heads, each * rows, seen}), v, false);
    return transpose(reshape(o, {heads, rows, s.value_dim}), {1, 0, 2});
  }

  // ---- A cache in chunks

  Value through_half(Value x) {
    return node(Op::convert, {node(Op::convert, {x}, {{"dtype", std::string("f16")}})},
                {{"dtype", std::string("f32")}});
  }

  // [rows, heads, d] as later rows will read it: kernels/scalar.h's quantise_kv, and back.
  Value as_kept(Value x) {
    if (options_.kv == KvFormat::f32) return x;
    if (options_.kv == KvFormat::f16) return through_half(x);
    const Value amax = node(Op::reduce_max, {unary(Op::abs, x)}, {{"axis", int64_t{-1}}});
    const Value scale = through_half(node(Op::maximum, {mul(amax, 1.0 / 127), constant(0x1p-14)}));
    return mul(unary(Op::round, mul(x, div(constant(1), scale))), scale);
  }

  // An input that several layers may share, as f32.
  Value input(const std::string& label, DType dtype, const Shape& shape) {
    const auto [found, fresh] = inputs_.try_emplace(label);
    if (fresh) {
      found->second = leaf(Op::input, label, shape, {}, dtype);
      if (dtype != DType::f32) found->second = node(Op::convert, {found->second}, {{"dtype", std::string("f32")}});
    }
    return found->second;
  }

  Value cached(const StateDecl& s, std::string_view part, size_t chunk, Shape shape) {
    const DType element = options_.kv == KvFormat::int8  ? DType::i8
                          : options_.kv == KvFormat::f16 ? DType::f16
                                                         : DType::f32;
    return input(fmt::format("{}.{}.{}", s.name, part, chunk), element, shape);
  }

  Value scaled(Value x, const StateDecl& s, std::string_view part, size_t chunk, int64_t length) {
    if (options_.kv != KvFormat::int8) return x;
    return mul(x, input(fmt::format("{}.{}_scale.{}", s.name, part, chunk), DType::f16, {s.heads, 1, length}));
  }

  // One softmax over all chunks and the rows themselves, by shares that sum to at most 16 (FP16 holds neither 1 / l
  // nor the sum of all values over 32768 positions).
  Value attention_over_chunks(const StateDecl& s, Value k_new, Value v_new) {
    const std::vector<int64_t> lengths = options_.chunks(s);
    const int64_t rows = options_.rows, heads = type(in(0)).shape[1], grouped = heads / s.heads * rows;
    const Value by = mul(in(0), current_->attributes.number("scale"));
    const Value q = reshape(transpose(by, {1, 0, 2}), {s.heads, grouped, s.head_dim});
    Values parts;
    int64_t seen = rows;
    for (size_t i = 0; i < lengths.size(); seen += lengths[i++])
      parts.push_back(
          scaled(matmul(q, cached(s, "k", i, {s.heads, lengths[i], s.head_dim}), true), s, "k", i, lengths[i]));
    parts.push_back(matmul(q, k_new, true));
    Value scores = parts.size() == 1 ? parts[0] : node(Op::concat, parts, {{"axis", int64_t{2}}});
    if (const double cap = current_->attributes.number("soft_cap"); cap > 0) scores = soft_cap(scores, cap);
    const Value mask = input(fmt::format("window{}.mask", s.window), DType::f32, {rows, seen});
    scores = add(reshape(scores, {heads, rows, seen}), mask);
    Value m = node(Op::reduce_max, {scores}, {{"axis", int64_t{-1}}}), sinks;
    if (current_->inputs.size() > 1) m = node(Op::maximum, {m, sinks = reshape(in(1), {heads, 1, 1})});
    Value p = unary(Op::exp, node(Op::subtract, {scores, m}));
    Value l = node(Op::reduce_sum, {p}, {{"axis", int64_t{-1}}});
    if (sinks.valid()) l = add(l, unary(Op::exp, node(Op::subtract, {sinks, m})));
    const Value most = constant(16);
    p = reshape(mul(p, div(most, node(Op::maximum, {l, most}))), {s.heads, grouped, seen});
    Value o = matmul(slice(p, 2, seen - rows, seen), v_new, false);
    for (size_t i = 0, at = 0; i < lengths.size(); at += static_cast<size_t>(lengths[i++])) {
      const auto begin = static_cast<int64_t>(at);
      const Value share = scaled(slice(p, 2, begin, begin + lengths[i]), s, "v", i, lengths[i]);
      o = add(o, matmul(share, cached(s, "v", i, {s.heads, s.value_dim, lengths[i]}), true));
    }
    o = div(reshape(o, {heads, rows, s.value_dim}), node(Op::minimum, {l, most}));
    return transpose(o, {1, 0, 2});
  }

  Value state_step(const Node& n) {
    if (options_.rows == kRows) {
      error_ = Error{Code::unsupported,
                     fmt::format("{}: '{}' has a primitive form for fixed rows only", n.label, name(n.op))};
      return {};
    }
    Values inputs;
    for (const Value v : n.inputs) inputs.push_back(map(v));
    auto v = recurrent_.lower(n, std::move(inputs));
    if (!v) error_ = v.error();
    return v ? *v : Value{};
  }

  // What has the same meaning on both levels, with S fixed.
  Value copy(const Node& n) {
    Node c = n;
    for (Value& v : c.inputs) v = map(v);
    c.type.shape = fixed(c.type.shape);
    if (n.op == Op::reshape) c.attributes.set("shape", fixed(n.attributes.integers("shape")));
    to_.nodes.push_back(std::move(c));
    return Value{static_cast<int32_t>(to_.nodes.size()) - 1};
  }

  Value lower(const Node& n) {
    switch (n.op) {
      case Op::linear:
        return linear(0, 1, 2);
      case Op::linear_add:
        return add(in(0), linear(1, 2, 3));
      case Op::rms_norm:
        return rms_norm();
      case Op::rms_norm_quantize:
        return quantize(rms_norm());
      case Op::layer_norm:
        return layer_norm();
      case Op::l2_norm:
        return l2_norm();
      case Op::hadamard:
        return hadamard();
      case Op::rope:
        return rope();
      case Op::gated:
        return gated(in(0), in(1));
      case Op::gated_quantize:
        return quantize(gated(in(0), in(1)));
      case Op::linear_gated_quantize:
        return quantize(linear_gated());
      case Op::activate:
        return activate(n.attributes.text("activation"), in(0));
      case Op::quantize:
        return quantize(in(0));
      case Op::soft_cap:
        return soft_cap(in(0), n.attributes.number("cap"));
      case Op::scale:
        return mul(in(0), n.attributes.number("by"));
      case Op::embed_rows:
        return node(Op::gather, {in(1), in(0)});
      case Op::kv_write:
        return kv_write();
      case Op::attention:
        return attention();
      case Op::conv_update:
      case Op::gated_delta:
        return state_step(n);
      default:
        break;
    }
    if (info(n.op).level != Level::coarse) return copy(n);
    error_ = Error{Code::unsupported, fmt::format("{}: '{}' has no primitive form yet", n.label, name(n.op))};
    return {};
  }

  const Program& program_;
  const Function& from_;
  const DecomposeOptions& options_;
  Function to_;
  StateDecomposer recurrent_;
  std::vector<Value> map_;
  std::vector<Output> states_;
  std::map<std::string, std::pair<Value, Value>> written_;
  std::map<std::string, Value> inputs_;  // that layers share
  const Node* current_ = nullptr;
  int part_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Function> decompose(const Program& program, const Function& function, const DecomposeOptions& options) {
  return Decomposer(program, function, options).run();
}

}  // namespace onw
