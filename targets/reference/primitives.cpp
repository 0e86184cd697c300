#include "targets/reference/primitives.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "graph/ops.h"
#include "kernels/scalar.h"
#include "targets/reference/npu.h"

namespace onw::reference {
namespace {

// Elements between neighbours along each dimension; 0 where `from` is broadcast to `to`.
std::vector<int64_t> strides(const Shape& from, const Shape& to) {
  std::vector<int64_t> s(to.size());
  int64_t step = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t f = from.size() - 1 - i, t = to.size() - 1 - i;
    s[t] = from[f] == 1 ? 0 : step;
    step *= from[f];
  }
  return s;
}

// Calls f(position in the output, positions in the inputs) for every element of `shape`.
template <size_t N, class F>
void walk(const Shape& shape, const std::array<std::vector<int64_t>, N>& strides, F f) {
  int64_t total = 1;
  for (const int64_t d : shape) total *= d;
  std::vector<int64_t> index(shape.size());
  std::array<int64_t, N> at{};
  for (int64_t i = 0; i < total; ++i) {
    f(i, at);
    for (size_t d = shape.size(); d-- > 0;) {
      for (size_t k = 0; k < N; ++k) at[k] += strides[k][d];
      if (++index[d] < shape[d]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= strides[k][d] * shape[d];
      index[d] = 0;
    }
  }
}

template <class F>
Tensor binary(Tensor out, const Tensor& a, const Tensor& b, F f) {
  const std::array both = {strides(a.type.shape, out.type.shape), strides(b.type.shape, out.type.shape)};
  walk<2>(out.type.shape, both, [&](int64_t i, const auto& at) {
    out.f[static_cast<size_t>(i)] = f(a.f[static_cast<size_t>(at[0])], b.f[static_cast<size_t>(at[1])]);
  });
  return out;
}

template <class F>
Tensor unary(const Tensor& x, F f) {
  Tensor y = x;
  for (float& v : y.f) v = f(v);
  return y;
}

size_t axis_of(const Node& n, const Tensor& x) {
  const int64_t axis = n.attributes.integer("axis", -1);
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.type.shape.size()) : axis);
}

// [outer, dim, inner] around an axis.
struct Around {
  int64_t outer = 1, dim = 1, inner = 1;
  Around(const Shape& s, size_t axis) {
    for (size_t i = 0; i < s.size(); ++i) (i < axis ? outer : i == axis ? dim : inner) *= s[i];
  }
};

Tensor slice(const Node& n, const Tensor& x, Tensor out) {
  const Around a(x.type.shape, axis_of(n, x));
  const int64_t begin = n.attributes.integer("begin"), count = n.attributes.integer("end") - begin;
  for (int64_t o = 0; o < a.outer; ++o)
    std::copy_n(x.f.begin() + (o * a.dim + begin) * a.inner, count * a.inner, out.f.begin() + o * count * a.inner);
  return out;
}

Tensor concat(const Node& n, const Operands& in, Tensor out) {
  const Around to(out.type.shape, axis_of(n, *in.values[0]));
  int64_t at = 0;
  for (const Tensor* x : in.values) {
    const Around a(x->type.shape, axis_of(n, *x));
    for (int64_t o = 0; o < a.outer; ++o)
      std::copy_n(x->f.begin() + o * a.dim * a.inner, a.dim * a.inner, out.f.begin() + (o * to.dim + at) * a.inner);
    at += a.dim;
  }
  return out;
}

Tensor transpose(const Node& n, const Tensor& x, Tensor out) {
  const auto& order = n.attributes.integers("order");
  std::vector<int64_t> from(x.type.shape.size(), 1), s;
  for (size_t i = x.type.shape.size() - 1; i-- > 0;) from[i] = from[i + 1] * x.type.shape[i + 1];
  for (const int64_t o : order) s.push_back(from[static_cast<size_t>(o)]);
  walk<1>(out.type.shape, {s},
          [&](int64_t i, const auto& at) { out.f[static_cast<size_t>(i)] = x.f[static_cast<size_t>(at[0])]; });
  return out;
}

Tensor gather(const Tensor& table, const Tensor& ids, Tensor out) {
  const int64_t width = table.type.row_elements();
  for (int64_t r = 0; r < ids.elements(); ++r)
    std::copy_n(table.f.begin() + static_cast<int64_t>(ids.f[static_cast<size_t>(r)]) * width, width,
                out.f.begin() + r * width);
  return out;
}

// One accumulator per output, inner index ascending, fma: the arithmetic of plain products.
Tensor matmul(const Node& n, const Tensor& x, const Tensor& y, Tensor out) {
  const bool transposed = n.attributes.integer("transpose_b") != 0;
  const size_t rank = out.type.shape.size();
  const int64_t m = out.type.shape[rank - 2], p = out.type.shape[rank - 1], k = x.type.last();
  const Shape batch(out.type.shape.begin(), out.type.shape.end() - 2);
  const std::array both = {strides(Shape(x.type.shape.begin(), x.type.shape.end() - 2), batch),
                           strides(Shape(y.type.shape.begin(), y.type.shape.end() - 2), batch)};
  walk<2>(batch, both, [&](int64_t i, const auto& at) {
    const float* a = x.f.data() + at[0] * m * k;
    const float* b = y.f.data() + at[1] * p * k;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t o = 0; o < p; ++o) {
        float sum = 0;
        for (int64_t j = 0; j < k; ++j) sum = std::fma(a[r * k + j], transposed ? b[o * k + j] : b[j * p + o], sum);
        out.f[static_cast<size_t>((i * m + r) * p + o)] = sum;
      }
    }
  });
  return out;
}

Tensor reduce(const Node& n, const Tensor& x, Tensor out) {
  const Around a(x.type.shape, axis_of(n, x));
  std::vector<float> line(static_cast<size_t>(a.dim));
  for (int64_t o = 0; o < a.outer; ++o) {
    for (int64_t i = 0; i < a.inner; ++i) {
      for (int64_t d = 0; d < a.dim; ++d)
        line[static_cast<size_t>(d)] = x.f[static_cast<size_t>((o * a.dim + d) * a.inner + i)];
      out.f[static_cast<size_t>(o * a.inner + i)] =
          n.op == Op::reduce_sum ? scalar::sum(line) : *std::ranges::max_element(line);
    }
  }
  return out;
}

Tensor softmax(const Tensor& x) {
  Tensor y = x;
  const auto n = static_cast<size_t>(x.type.last());
  for (size_t at = 0; at + n <= x.f.size(); at += n) scalar::softmax(std::span(x.f).subspan(at, n), y.f.data() + at);
  return y;
}

Tensor select(const Operands& in, Tensor out) {
  const Tensor &c = *in.values[0], &a = *in.values[1], &b = *in.values[2];
  const std::array all = {strides(c.type.shape, out.type.shape), strides(a.type.shape, out.type.shape),
                          strides(b.type.shape, out.type.shape)};
  walk<3>(out.type.shape, all, [&](int64_t i, const auto& at) {
    out.f[static_cast<size_t>(i)] =
        c.f[static_cast<size_t>(at[0])] != 0 ? a.f[static_cast<size_t>(at[1])] : b.f[static_cast<size_t>(at[2])];
  });
  return out;
}

float converted(DType to, float x) {
  if (to == DType::f16) return half_to_float(float_to_half(x));
  if (to == DType::i32 || to == DType::i8 || to == DType::u8 || to == DType::i4) return std::trunc(x);
  if (to == DType::boolean) return x != 0 ? 1.0f : 0.0f;
  return x;
}

}  // namespace

Result<Tensor> evaluate_primitive(const Node& n, const Operands& in, const Context& c) {
  // Weights that are operands of arithmetic come as FP32.
  std::vector<Tensor> loaded(in.values.size());
  std::vector<const Tensor*> values(in.values.begin(), in.values.end());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != nullptr) continue;
    auto w = load_weight(c.program, c.weights, in.names[i]);
    RETURN_IF_ERROR(w);
    const WeightDecl* decl = c.program.weight(in.names[i]);
    CHECK(decl != nullptr);
    loaded[i] = {.type = {DType::f32, decl->shape, 0}, .f = std::move(*w)};
    if (c.npu) npu_round(loaded[i]);
    values[i] = &loaded[i];
  }
  const Operands all{values, in.names};
  const Tensor& x = *values[0];
  Tensor out = make_tensor(n.type, c.rows);
  switch (n.op) {
    case Op::add:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return a + b; });
    case Op::subtract:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return a - b; });
    case Op::multiply:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return a * b; });
    case Op::divide:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return a / b; });
    case Op::maximum:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return std::max(a, b); });
    case Op::minimum:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return std::min(a, b); });
    case Op::power:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return std::pow(a, b); });
    case Op::less:
      return binary(std::move(out), x, *values[1], [](float a, float b) { return a < b ? 1.0f : 0.0f; });
    case Op::select:
      return select(all, std::move(out));
    case Op::sqrt:
      return unary(x, [](float v) { return std::sqrt(v); });
    case Op::exp:
      return unary(x, [](float v) { return scalar::exp(v); });
    case Op::tanh:
      return unary(x, [](float v) { return scalar::tanh(v); });
    case Op::erf:
      return unary(x, [](float v) { return std::erf(v); });
    case Op::sigmoid:
      return unary(x, [](float v) { return scalar::sigmoid(v); });
    case Op::abs:
      return unary(x, [](float v) { return std::fabs(v); });
    case Op::round:
      return unary(x, [](float v) { return std::nearbyint(v); });
    case Op::softmax:
      return softmax(x);
    case Op::convert:
      for (size_t i = 0; i < out.f.size(); ++i) out.f[i] = converted(out.type.dtype, x.f[i]);
      return out;
    case Op::reshape:
      out.f = x.f;
      return out;
    case Op::slice:
      return slice(n, x, std::move(out));
    case Op::concat:
      return concat(n, all, std::move(out));
    case Op::transpose:
      return transpose(n, x, std::move(out));
    case Op::broadcast:
      return binary(out, x, out, [](float a, float) { return a; });
    case Op::gather:
      return gather(x, *values[1], std::move(out));
    case Op::matmul:
      return matmul(n, x, *values[1], std::move(out));
    case Op::reduce_sum:
    case Op::reduce_max:
      return reduce(n, x, std::move(out));
    default:
      return error(Code::unsupported, "{}: the reference target has no '{}' yet", n.label, name(n.op));
  }
}

}  // namespace onw::reference
