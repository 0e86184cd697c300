#include "graph/shape_rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "graph/ops.h"

namespace onw {
namespace {

using Types = std::span<const Type>;

template <class... Args>
Failure bad(fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::invalid_argument, format, std::forward<Args>(args)...);
}

bool is_float(const Type& t) { return t.dtype == DType::f32 || t.dtype == DType::f16; }

Result<Type> need_rank(const Type& t, size_t rank, std::string_view what) {
  if (t.shape.size() != rank) return bad("{} is {}, rank {} expected", what, to_string(t), rank);
  return t;
}

Result<Type> need_vector(const Type& t, int64_t n, std::string_view what) {
  if (t.shape != Shape{n}) return bad("{} is {}, [{}] expected", what, to_string(t), n);
  return t;
}

// Two dimensions as in NumPy: equal, or one of them 1.
std::optional<int64_t> broadcast(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  return std::nullopt;
}

Result<Type> broadcast(const Type& a, const Type& b) {
  Type out{a.dtype, a.shape.size() >= b.shape.size() ? a.shape : b.shape, 0};
  const Shape& shorter = a.shape.size() >= b.shape.size() ? b.shape : a.shape;
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& dim = out.shape[out.shape.size() - 1 - i];
    const auto both = broadcast(dim, shorter[shorter.size() - 1 - i]);
    if (!both) return bad("{} and {} do not broadcast", to_string(a), to_string(b));
    dim = *both;
  }
  return out;
}

Result<Type> elementwise(Types in, const Attributes&) {
  if (in[0].dtype != in[1].dtype || !(is_float(in[0]) || in[0].dtype == DType::i32))
    return bad("{} and {} have no common number type", to_string(in[0]), to_string(in[1]));
  return broadcast(in[0], in[1]);
}

Result<Type> unary(Types in, const Attributes&) {
  if (!is_float(in[0])) return bad("{} is not a floating-point value", to_string(in[0]));
  return in[0];
}

Result<Type> embed_rows(Types in, const Attributes&) {
  RETURN_IF_ERROR(need_rank(in[0], 1, "ids"));
  RETURN_IF_ERROR(need_rank(in[1], 2, "table"));
  if (in[0].dtype != DType::i32) return bad("ids are {}, i32 expected", to_string(in[0]));
  return Type{DType::f32, {in[0].shape[0], in[1].shape[1]}, 0};
}

Result<Type> linear(Types in, const Attributes&) {
  RETURN_IF_ERROR(need_rank(in[0], 2, "x"));
  RETURN_IF_ERROR(need_rank(in[1], 2, "w"));
  if (in[0].dtype != DType::f32 && in[0].dtype != DType::q8)
    return bad("x is {}, f32 or q8 expected", to_string(in[0]));
  if (in[0].last() != in[1].last()) return bad("x has {} inputs, w is {}", in[0].last(), to_string(in[1]));
  if (in.size() > 2) RETURN_IF_ERROR(need_vector(in[2], in[1].shape[0], "bias"));
  return Type{DType::f32, {in[0].shape[0], in[1].shape[0]}, 0};
}

Result<Type> norm(Types in, const Attributes& a) {
  if (!is_float(in[0]) || in[0].shape.size() < 2) return bad("x is {}, [S, ..., n] expected", to_string(in[0]));
  for (size_t i = 1; i < in.size(); ++i) RETURN_IF_ERROR(need_vector(in[i], in[0].last(), i == 1 ? "weight" : "bias"));
  if (a.number("eps", -1) < 0) return bad("eps is missing or negative");
  return in[0];
}

Result<Type> rope(Types in, const Attributes&) {
  RETURN_IF_ERROR(need_rank(in[0], 3, "x"));
  RETURN_IF_ERROR(need_rank(in[1], 2, "cos"));
  if (in[1] != in[2]) return bad("cos is {}, sin is {}", to_string(in[1]), to_string(in[2]));
  if (in[1].last() * 2 > in[0].last())
    return bad("rotary width {} exceeds head_dim {}", in[1].last() * 2, in[0].last());
  return in[0];
}

Result<Type> need_state(const Attributes& a) {
  if (a.text("state").empty()) return bad("attribute 'state' is missing");
  return Type{};
}

Result<Type> need_kv(const Attributes& a) {
  const std::string_view kv = a.text("kv", "f32");
  if (kv != "f32" && kv != "f16" && kv != "int8") return bad("kv is '{}', one of f32, f16, int8 expected", kv);
  return Type{};
}

Result<Type> kv_write(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_rank(in[0], 3, "k"));
  RETURN_IF_ERROR(need_rank(in[1], 3, "v"));
  RETURN_IF_ERROR(need_state(a));
  RETURN_IF_ERROR(need_kv(a));
  if (in[0].shape[1] != in[1].shape[1]) return bad("k is {}, v is {}", to_string(in[0]), to_string(in[1]));
  return Type{DType::none, {}, 0};
}

Result<Type> attention(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_rank(in[0], 3, "q"));
  RETURN_IF_ERROR(need_state(a));
  RETURN_IF_ERROR(need_kv(a));
  if (in.size() > 1) RETURN_IF_ERROR(need_vector(in[1], in[0].shape[1], "sinks"));
  if (a.integer("window") < 0) return bad("window is negative");
  const int64_t value_dim = a.integer("value_dim", in[0].last());
  return Type{DType::f32, {in[0].shape[0], in[0].shape[1], value_dim}, 0};
}

Result<Type> conv_update(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_rank(in[0], 2, "x"));
  RETURN_IF_ERROR(need_rank(in[1], 2, "w"));
  RETURN_IF_ERROR(need_state(a));
  if (in[1].shape[0] != in[0].last()) return bad("x has {} channels, w is {}", in[0].last(), to_string(in[1]));
  if (in.size() > 2) RETURN_IF_ERROR(need_vector(in[2], in[0].last(), "bias"));
  return in[0];
}

Result<Type> gated_delta(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_state(a));
  for (size_t i = 0; i < 3; ++i) RETURN_IF_ERROR(need_rank(in[i], 3, "q, k or v"));
  if (in[0] != in[1]) return bad("q is {}, k is {}", to_string(in[0]), to_string(in[1]));
  const Shape gates = {in[2].shape[0], in[2].shape[1]};
  if (in[3].shape != gates || in[4].shape != gates)
    return bad("g is {}, beta is {}, {} expected", to_string(in[3]), to_string(in[4]), to_string(gates));
  if (in[0].shape[1] == 0 || in[2].shape[1] % in[0].shape[1] != 0)
    return bad("{} value heads are no multiple of {} key heads", in[2].shape[1], in[0].shape[1]);
  const std::string_view heads = a.text("heads", "grouped");
  if (heads != "grouped" && heads != "tiled") return bad("heads is '{}', one of grouped, tiled expected", heads);
  return in[2];
}

Result<Type> route(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_rank(in[0], 2, "logits"));
  constexpr std::array kKnown = {"softmax", "softmax_chosen", "sigmoid"};
  if (std::ranges::find(kKnown, a.text("kind")) == kKnown.end())
    return bad("kind '{}' is not one of {}", a.text("kind"), fmt::join(kKnown, ", "));
  if (in[0].last() > kMostExperts) return bad("{} experts, at most {} are possible", in[0].last(), kMostExperts);
  const int64_t k = a.integer("k");
  if (k < 1 || k > in[0].last()) return bad("k is {}, 1..{} expected", k, in[0].last());
  if (in.size() > 1) RETURN_IF_ERROR(need_vector(in[1], in[0].last(), "bias"));
  return Type{DType::route, {in[0].shape[0], k}, 0};
}

Result<Type> need_activation(const Attributes& a) {
  constexpr std::array kKnown = {"silu", "gelu_tanh", "gelu", "swiglu_clamped", "sigmoid", "relu", "softplus"};
  const std::string_view kind = a.text("activation");
  if (std::ranges::find(kKnown, kind) == kKnown.end())
    return bad("activation '{}' is not one of {}", kind, fmt::join(kKnown, ", "));
  return Type{};
}

Result<Type> experts(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_activation(a));
  RETURN_IF_ERROR(need_rank(in[0], 2, "x"));
  for (size_t i = 2; i < 5; ++i) RETURN_IF_ERROR(need_rank(in[i], 3, "gate, up or down"));
  if (in[1].dtype != DType::route) return bad("the second input is {}, route expected", to_string(in[1]));
  const Shape &gate = in[2].shape, &up = in[3].shape, &down = in[4].shape;
  if (gate != up || gate[0] != down[0] || gate[1] != down[2] || gate[2] != in[0].last())
    return bad("x {}, gate {}, up {} and down {} do not fit", to_string(in[0]), to_string(gate), to_string(up),
               to_string(down));
  if (in[1].last() > gate[0]) return bad("a row takes {} of {} experts", in[1].last(), gate[0]);
  if (in.size() != 5 && in.size() != 8) return bad("gate, up and down have a bias each, or none of them");
  for (size_t i = 5; i < in.size(); ++i)
    if (const Shape wanted = {gate[0], i < 7 ? gate[1] : down[1]}; in[i].shape != wanted)
      return bad("a bias is {}, {} expected", to_string(in[i]), to_string(wanted));
  return Type{DType::f32, {in[0].shape[0], down[1]}, 0};
}

Result<Type> gated(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_activation(a));
  if (in[0] != in[1]) return bad("gate is {}, up is {}", to_string(in[0]), to_string(in[1]));
  return in[0];
}

Result<Type> activate(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_activation(a));
  return unary(in, a);
}

Result<Type> hadamard(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_vector(in[1], in[0].last(), "signs"));
  const int64_t block = a.integer("block");
  if (block < 1 || (block & (block - 1)) != 0 || in[0].last() % block != 0)
    return bad("block {} is no power of two that divides {}", block, in[0].last());
  return in[0];
}

Result<Type> soft_cap(Types in, const Attributes& a) {
  if (a.number("cap") <= 0) return bad("cap is {}, positive expected", a.number("cap"));
  return unary(in, a);
}

Result<Type> quantize(Types in, const Attributes& a) {
  RETURN_IF_ERROR(need_rank(in[0], 2, "x"));
  const int64_t group = a.integer("group");
  if (group < 1 || in[0].last() % group != 0) return bad("group {} does not divide {} inputs", group, in[0].last());
  return Type{DType::q8, in[0].shape, group};
}

// What one step gives, quantised by the next.
template <Result<Type> (*first)(Types, const Attributes&)>
Result<Type> quantized(Types in, const Attributes& a) {
  const auto value = first(in, a);
  RETURN_IF_ERROR(value);
  return quantize(std::span(&*value, 1), a);
}

Result<Type> linear_add(Types in, const Attributes& a) {
  const auto sum = linear(in.subspan(1), a);
  RETURN_IF_ERROR(sum);
  if (in[0] != *sum) return bad("the residual is {}, the product {}", to_string(in[0]), to_string(*sum));
  return sum;
}

Result<Type> linear_gated(Types in, const Attributes& a) {
  auto both = linear(in, a);
  RETURN_IF_ERROR(both);
  if (both->last() % 2 != 0) return bad("{} outputs are not a gate and as many of up", both->last());
  const Type half{DType::f32, {both->shape[0], both->last() / 2}, 0};
  return gated(std::array{half, half}, a);
}

Result<Type> reshape(Types in, const Attributes& a) {
  Shape shape = a.integers("shape");
  const auto count = [](const Shape& s) {
    int64_t n = 1;
    for (const int64_t d : s) n *= d;  // kRows is -1: the sign tells whether the symbol is kept
    return n;
  };
  if (count(shape) != count(in[0].shape)) return bad("{} cannot become {}", to_string(in[0]), to_string(shape));
  return Type{in[0].dtype, std::move(shape), 0};
}

Result<int64_t> axis_of(const Attributes& a, const Type& t) {
  int64_t axis = a.integer("axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(t.shape.size());
  if (axis < 0 || axis >= static_cast<int64_t>(t.shape.size()))
    return bad("axis {} of {}", a.integer("axis", -1), to_string(t));
  return axis;
}

Result<Type> slice(Types in, const Attributes& a) {
  const auto axis = axis_of(a, in[0]);
  RETURN_IF_ERROR(axis);
  const int64_t begin = a.integer("begin"), end = a.integer("end");
  Type out = in[0];
  int64_t& dim = out.shape[static_cast<size_t>(*axis)];
  if (dim == kRows || begin < 0 || begin >= end || end > dim)
    return bad("[{}, {}) of axis {} of {}", begin, end, *axis, to_string(in[0]));
  dim = end - begin;
  return out;
}

Result<Type> concat(Types in, const Attributes& a) {
  const auto axis = axis_of(a, in[0]);
  RETURN_IF_ERROR(axis);
  Type out = in[0];
  const auto at = static_cast<size_t>(*axis);
  for (const Type& t : in.subspan(1)) {
    Type like = t;
    if (t.shape.size() != out.shape.size()) return bad("{} after {}", to_string(t), to_string(out));
    like.shape[at] = out.shape[at];
    if (like != out) return bad("{} after {}", to_string(t), to_string(out));
    if (out.shape[at] == kRows || t.shape[at] == kRows) return bad("rows of a step cannot be concatenated");
    out.shape[at] += t.shape[at];
  }
  return out;
}

Result<Type> less(Types in, const Attributes& a) {
  auto out = elementwise(in, a);
  if (out) out->dtype = DType::boolean;
  return out;
}

Result<Type> select(Types in, const Attributes& a) {
  if (in[0].dtype != DType::boolean) return bad("the condition is {}, bool expected", to_string(in[0]));
  auto out = elementwise(in.subspan(1), a);
  RETURN_IF_ERROR(out);
  auto shape = broadcast(*out, Type{out->dtype, in[0].shape, 0});
  return shape;
}

Result<Type> convert(Types in, const Attributes& a) {
  const auto to = dtype(a.text("dtype"));
  if (!to) return bad("dtype '{}' is unknown", a.text("dtype"));
  return Type{*to, in[0].shape, 0};
}

Result<Type> transpose(Types in, const Attributes& a) {
  const auto& order = a.integers("order");
  Type out = in[0];
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i) || sorted.size() != in[0].shape.size())
      return bad("order {} of {}", order, to_string(in[0]));
  for (size_t i = 0; i < order.size(); ++i) out.shape[i] = in[0].shape[static_cast<size_t>(order[i])];
  return out;
}

Result<Type> broadcast_to(Types in, const Attributes& a) {
  const Type target{in[0].dtype, a.integers("shape"), 0};
  const auto out = broadcast(in[0], target);
  if (!out || *out != target) return bad("{} does not broadcast to {}", to_string(in[0]), to_string(target.shape));
  return target;
}

Result<Type> gather(Types in, const Attributes&) {
  RETURN_IF_ERROR(need_rank(in[1], 1, "ids"));
  Type out = in[0];
  if (out.shape.empty()) return bad("the table is a scalar");
  out.shape[0] = in[1].shape[0];
  return out;
}

Result<Type> matmul(Types in, const Attributes& a) {
  const Type &x = in[0], &y = in[1];
  if (x.shape.size() < 2 || y.shape.size() < 2) return bad("{} times {}", to_string(x), to_string(y));
  const size_t xr = x.shape.size(), yr = y.shape.size();
  const bool transposed = a.integer("transpose_b") != 0;
  const int64_t inner = transposed ? y.shape[yr - 1] : y.shape[yr - 2];
  const int64_t outer = transposed ? y.shape[yr - 2] : y.shape[yr - 1];
  if (inner != x.shape[xr - 1] || x.dtype != y.dtype) return bad("{} times {}", to_string(x), to_string(y));
  const auto batch = broadcast(Type{x.dtype, Shape(x.shape.begin(), x.shape.end() - 2), 0},
                               Type{x.dtype, Shape(y.shape.begin(), y.shape.end() - 2), 0});
  RETURN_IF_ERROR(batch);
  Type out = *batch;
  out.shape.push_back(x.shape[xr - 2]);
  out.shape.push_back(outer);
  return out;
}

Result<Type> reduce(Types in, const Attributes& a) {
  const auto axis = axis_of(a, in[0]);
  RETURN_IF_ERROR(axis);
  Type out = in[0];
  out.shape[static_cast<size_t>(*axis)] = 1;
  return out;
}

Result<Type> pool(Types in, const Attributes&) {
  RETURN_IF_ERROR(need_rank(in[0], 2, "x"));
  return in[0];
}

using Rule = Result<Type> (*)(Types, const Attributes&);

Rule rule(Op op) {
  switch (op) {
    case Op::input:
    case Op::weight:
    case Op::constant:
      return nullptr;
    case Op::embed_rows:
      return embed_rows;
    case Op::linear:
      return linear;
    case Op::rms_norm:
    case Op::layer_norm:
    case Op::l2_norm:
      return norm;
    case Op::rope:
      return rope;
    case Op::kv_write:
      return kv_write;
    case Op::attention:
      return attention;
    case Op::conv_update:
      return conv_update;
    case Op::gated_delta:
      return gated_delta;
    case Op::route:
      return route;
    case Op::experts:
      return experts;
    case Op::gated:
      return gated;
    case Op::activate:
      return activate;
    case Op::hadamard:
      return hadamard;
    case Op::soft_cap:
      return soft_cap;
    case Op::quantize:
      return quantize;
    case Op::linear_add:
      return linear_add;
    case Op::rms_norm_quantize:
      return quantized<norm>;
    case Op::gated_quantize:
      return quantized<gated>;
    case Op::linear_gated_quantize:
      return quantized<linear_gated>;
    case Op::pool:
      return pool;
    case Op::reshape:
      return reshape;
    case Op::slice:
      return slice;
    case Op::concat:
      return concat;
    case Op::add:
    case Op::multiply:
    case Op::subtract:
    case Op::divide:
    case Op::maximum:
    case Op::minimum:
    case Op::power:
      return elementwise;
    case Op::less:
      return less;
    case Op::select:
      return select;
    case Op::scale:
    case Op::sqrt:
    case Op::exp:
    case Op::tanh:
    case Op::erf:
    case Op::sigmoid:
    case Op::abs:
    case Op::round:
    case Op::softmax:
      return unary;
    case Op::convert:
      return convert;
    case Op::transpose:
      return transpose;
    case Op::broadcast:
      return broadcast_to;
    case Op::gather:
      return gather;
    case Op::matmul:
      return matmul;
    case Op::reduce_sum:
    case Op::reduce_max:
      return reduce;
  }
  return nullptr;
}

}  // namespace

Result<Type> result_type(Op op, Types inputs, const Attributes& attributes) {
  const OpInfo& i = info(op);
  const auto count = static_cast<int>(inputs.size());
  if (count < i.least_inputs || count > i.most_inputs)
    return bad("{} takes {}..{} inputs, has {}", i.name, i.least_inputs, i.most_inputs, count);
  const Rule f = rule(op);
  CHECK(f != nullptr);
  auto type = f(inputs, attributes);
  if (!type) return failure(std::move(type), i.name);
  return type;
}

}  // namespace onw
