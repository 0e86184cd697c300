#include "targets/reference/experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/route/route.h"
#include "quant/unpack.h"

namespace onw::reference {
namespace {

// Some rows of x, FP32 or codes, one after the other.
Tensor gather(const Tensor& x, std::span<const int64_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  Tensor y = make_tensor({x.type.dtype, {kRows, x.type.last()}, x.type.group}, count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = rows[static_cast<size_t>(i)];
    if (x.type.dtype != DType::q8) {
      std::ranges::copy(x.row(r), y.row(i).begin());
      continue;
    }
    const int64_t group = x.q.group, width = x.type.last();
    for (int64_t g = 0; g < width / group; ++g) {
      std::copy_n(x.q.codes + (g * x.q.row_stride + r) * group, group, y.q.codes + (g * y.q.row_stride + i) * group);
      y.q.scales[g * y.q.row_stride + i] = x.q.scales[g * x.q.row_stride + r];
    }
    for (int64_t part = 0; part < width / 32; ++part)
      y.q.sums[part * y.q.row_stride + i] = x.q.sums[part * x.q.row_stride + r];
  }
  return y;
}

// Operand i of the node, a stack of experts.
struct Stack {
  WeightView weight, bias;  // bias: no outputs where there is none
};
Result<Stack> stack(const Operands& in, size_t i, const Context& c) {
  Stack s;
  auto weight = c.weights.find(in.names[i]);
  RETURN_IF_ERROR(weight);
  s.weight = *weight;
  if (in.names.size() <= 5) return s;
  auto bias = c.weights.find(in.names[i + 3]);
  RETURN_IF_ERROR(bias);
  s.bias = *bias;
  return s;
}

Tensor expert_product(const Tensor& x, const Stack& s, int64_t expert, const Context& c) {
  const WeightView w = s.weight.expert(expert);
  Tensor y = make_tensor({DType::f32, {kRows, w.outputs}, 0}, x.rows());
  std::vector<float> bias;
  if (s.bias.outputs > 0) {
    const WeightView b = s.bias.expert(expert);
    for (int64_t o = 0; o < b.outputs; ++o) dequantise_row(b, o, {&bias.emplace_back(), 1});
  }
  product(x, w, 0, c, {.y = y.f.data(), .stride = w.outputs, .bias = bias.empty() ? nullptr : bias.data()});
  return y;
}

}  // namespace

Result<Tensor> route_rows(const Node& n, const Operands& in, const Context& c) {
  const Tensor& logits = *in.values[0];
  const Attributes& a = n.attributes;
  std::vector<float> bias;
  if (in.names.size() > 1) {
    auto values = load_weight(c.program, c.weights, in.names[1]);
    RETURN_IF_ERROR(values);
    bias = std::move(*values);
  }
  const RouteForm form{.kind = *route_kind(a.text("kind")),
                       .renormalise = a.integer("renormalise") != 0,
                       .eps = static_cast<float>(a.number("eps")),
                       .scale = static_cast<float>(a.number("scale", 1)),
                       .bias = bias.empty() ? nullptr : bias.data()};
  const auto k = static_cast<size_t>(a.integer("k"));
  Tensor y = make_tensor(n.type, c.rows);
  const size_t half = y.f.size();
  y.f.resize(2 * half);
  std::vector<int32_t> ids(k);
  for (int64_t r = 0; r < c.rows; ++r) {
    const size_t at = static_cast<size_t>(r) * k;
    if (!route(form, logits.row(r), ids, std::span(y.f).subspan(at, k)))
      return error(Code::numerics, "the router's logits of row {} are not finite", r);
    std::ranges::copy(ids, y.f.begin() + static_cast<ptrdiff_t>(half + at));
  }
  return y;
}

Result<Tensor> run_experts(const Node& n, const Operands& in, const Context& c) {
  const Tensor &x = *in.values[0], &route = *in.values[1];
  const auto gate = stack(in, 2, c), up = stack(in, 3, c), down = stack(in, 4, c);
  RETURN_IF_ERROR(gate);
  RETURN_IF_ERROR(up);
  RETURN_IF_ERROR(down);
  const int64_t k = route.type.last(), group = n.attributes.integer("group");
  const auto half = static_cast<size_t>(c.rows * k);
  const scalar::Gate kind = gate_of(n);
  Tensor y = make_tensor(n.type, c.rows);
  for (int64_t e = 0; e < gate->weight.experts; ++e) {
    std::vector<int64_t> rows;
    std::vector<float> weights;
    for (size_t i = 0; i < half; ++i) {
      if (route.f[half + i] != static_cast<float>(e)) continue;
      rows.push_back(static_cast<int64_t>(i) / k);
      weights.push_back(route.f[i]);
    }
    if (rows.empty()) continue;
    const Tensor mine = gather(x, rows);
    Tensor inner = expert_product(mine, *gate, e, c);
    const Tensor other = expert_product(mine, *up, e, c);
    for (size_t i = 0; i < inner.f.size(); ++i) inner.f[i] = scalar::gated(kind, inner.f[i], other.f[i]);
    const Tensor out = expert_product(group > 0 ? quantise(inner, group) : inner, *down, e, c);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<float> to = y.row(rows[i]);
      for (size_t o = 0; o < to.size(); ++o) to[o] = to[o] + weights[i] * out.row(static_cast<int64_t>(i))[o];
    }
  }
  return y;
}

}  // namespace onw::reference
