#include "targets/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/half.h"
#include "graph/ops.h"
#include "kernels/attention/reference.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/matmul/matmul.h"
#include "kernels/scalar.h"
#include "quant/relayout.h"
#include "quant/unpack.h"
#include "targets/reference/experts.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/primitives.h"
#include "targets/reference/recurrent_ops.h"
#include "targets/reference/threads.h"

namespace onw::reference {

void product(const Tensor& x, const WeightView& w, int64_t column, const Context& c, MatmulOutput out) {
  out.y += column;
  if (out.bias != nullptr) out.bias += column;
  if (out.residual != nullptr) out.residual += column;
  const bool judge = c.isa == Isa::generic || w.layout == Layout::rows;
  split(output_blocks(w), c.threads, [&](int64_t first, int64_t last) {
    if (x.type.dtype == DType::q8) {
      judge ? matmul_reference(x.q, w, {first, last}, out) : matmul(x.q, w, {first, last}, out, c.isa);
    } else {
      const FloatRows rows{x.f.data(), x.rows(), x.type.last()};
      const bool has_kernel = info(w.format).plain();  // FP32 rows times codes: only without quantised activations
      judge || !has_kernel ? matmul_reference(rows, w, {first, last}, out) : matmul(rows, w, {first, last}, out, c.isa);
    }
  });
}

Tensor quantise(const Tensor& x, int64_t group) {
  Tensor q = make_tensor({DType::q8, {kRows, x.type.last()}, group}, x.rows());
  const auto g = static_cast<size_t>(group);
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < x.type.last() / group; ++i) {
      const int64_t at = i * q.q.row_stride + r;
      int8_t* codes = q.q.codes + at * group;
      q.q.scales[at] = scalar::quantise(x.row(r).subspan(static_cast<size_t>(i) * g, g), codes);
      for (int64_t part = 0; part < group / 32; ++part) {
        int32_t sum = 0;
        for (int64_t k = 0; k < 32; ++k) sum += codes[part * 32 + k];
        q.q.sums[(i * group / 32 + part) * q.q.row_stride + r] = sum;
      }
    }
  }
  return q;
}

scalar::Gate gate_of(const Node& n) {
  scalar::Gate g;
  g.activation = *scalar::activation(n.attributes.text("activation"));
  g.limit = static_cast<float>(n.attributes.number("limit", g.limit));
  g.alpha = static_cast<float>(n.attributes.number("alpha", g.alpha));
  return g;
}

namespace {

std::string_view weight_name(const Operands& in, size_t i) { return in.names[i]; }

// The vector behind operand i: a weight by name, or a value.
Result<std::vector<float>> vector_of(const Operands& in, size_t i, const Context& c) {
  if (i >= in.values.size()) return std::vector<float>();
  if (in.values[i] != nullptr) return in.values[i]->f;
  return load_weight(c.program, c.weights, weight_name(in, i));
}

Result<Tensor> linear(const Node& n, const Operands& in, size_t at, const Context& c, const Tensor* residual) {
  const auto bias = vector_of(in, at + 2, c);
  RETURN_IF_ERROR(bias);
  Tensor y = make_tensor(n.type, c.rows);
  MatmulOutput out{.y = y.f.data(), .stride = n.type.last(), .bias = bias->empty() ? nullptr : bias->data()};
  if (residual != nullptr) out.residual = residual->f.data(), out.residual_stride = n.type.last();
  const WeightDecl* decl = c.program.weight(weight_name(in, at + 1));
  CHECK(decl != nullptr);
  int64_t column = 0;
  for (const std::string& part : decl->parts.empty() ? std::vector{decl->name} : decl->parts) {
    const auto w = c.weights.find(part);
    RETURN_IF_ERROR(w);
    product(*in.values[at], *w, column, c, out);
    column += w->outputs;
  }
  return y;
}

// Norms of the last dimension of each row, whatever lies between.
template <class F>
Tensor each_last(const Tensor& x, F f) {
  Tensor y = x;
  const auto n = static_cast<size_t>(x.type.last());
  for (size_t at = 0; at + n <= x.f.size(); at += n) f(std::span(x.f).subspan(at, n), y.f.data() + at);
  return y;
}

Result<Tensor> rms_norm(const Node& n, const Operands& in, const Context& c) {
  const auto w = vector_of(in, 1, c);
  RETURN_IF_ERROR(w);
  const auto eps = static_cast<float>(n.attributes.number("eps"));
  return each_last(*in.values[0], [&](std::span<const float> x, float* y) {
    scalar::rms_norm(x, w->empty() ? nullptr : w->data(), eps, y);
  });
}

Result<Tensor> layer_norm(const Node& n, const Operands& in, const Context& c) {
  const auto w = vector_of(in, 1, c);
  RETURN_IF_ERROR(w);
  const auto b = vector_of(in, 2, c);
  RETURN_IF_ERROR(b);
  const auto eps = static_cast<float>(n.attributes.number("eps"));
  return each_last(*in.values[0], [&](std::span<const float> x, float* y) {
    scalar::layer_norm(x, w->data(), b->empty() ? nullptr : b->data(), eps, y);
  });
}

Result<Tensor> rotated(const Node& n, const Operands& in, const Context& c) {
  const auto signs = vector_of(in, 1, c);
  RETURN_IF_ERROR(signs);
  const Hadamard form{signs->data(), n.type.last(), n.attributes.integer("block"),
                      n.attributes.integer("inverse") != 0};
  return each_last(*in.values[0],
                   [&](std::span<const float> x, float* y) { hadamard(form, x.data(), y, Isa::generic); });
}

Tensor rope(const Operands& in) {
  Tensor y = *in.values[0];
  const int64_t heads = y.type.shape[1], d = y.type.shape[2];
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t h = 0; h < heads; ++h)
      scalar::rope(y.row(r).data() + h * d, in.values[1]->row(r), in.values[2]->row(r));
  return y;
}

Tensor gated(const Node& n, const Operands& in) {
  Tensor y = *in.values[0];
  const scalar::Gate gate = gate_of(n);
  for (size_t i = 0; i < y.f.size(); ++i) y.f[i] = scalar::gated(gate, y.f[i], in.values[1]->f[i]);
  return y;
}

// Gate and up by one product, then their gated product.
Result<Tensor> linear_gated(const Node& n, const Operands& in, const Context& c) {
  Node product = n;
  product.type = {DType::f32, {kRows, 2 * n.type.last()}, 0};
  const auto both = linear(product, in, 0, c, nullptr);
  RETURN_IF_ERROR(both);
  Tensor y = make_tensor({DType::f32, {kRows, n.type.last()}, 0}, c.rows);
  const scalar::Gate gate = gate_of(n);
  const auto width = static_cast<size_t>(n.type.last());
  for (int64_t r = 0; r < c.rows; ++r)
    for (size_t i = 0; i < width; ++i) y.row(r)[i] = scalar::gated(gate, both->row(r)[i], both->row(r)[width + i]);
  return y;
}

template <class F>
Tensor each(const Tensor& x, F f) {
  Tensor y = x;
  for (float& v : y.f) v = f(v);
  return y;
}

Result<Tensor> embed_rows(const Node& n, const Operands& in, const Context& c) {
  const auto table = c.weights.find(weight_name(in, 1));
  RETURN_IF_ERROR(table);
  Tensor y = make_tensor(n.type, c.rows);
  for (int64_t r = 0; r < y.rows(); ++r) {
    const auto id = static_cast<int64_t>(in.values[0]->f[static_cast<size_t>(r)]);
    if (id < 0 || id >= table->outputs)
      return error(Code::invalid_argument, "{}: id {} of a table of {}", n.label, id, table->outputs);
    dequantise_row(*table, id, y.row(r));
  }
  return y;
}

Tensor kv_write(const Node& n, const Operands& in, const Context& c) {
  const int state = c.program.state(n.attributes.text("state"));
  for (int64_t r = 0; r < c.rows; ++r) {
    const Row& row = c.step->rows[static_cast<size_t>(r)];
    c.cache(row.sequence, state).write(row.index, in.values[0]->row(r), in.values[1]->row(r));
  }
  return make_tensor({DType::none, {}, 0}, 0);
}

Result<Tensor> attention(const Node& n, const Operands& in, const Context& c) {
  const int state = c.program.state(n.attributes.text("state"));
  const auto sinks = vector_of(in, 1, c);
  RETURN_IF_ERROR(sinks);
  const int64_t heads = n.type.shape[1], d = in.values[0]->type.shape[2];
  const StateDecl& decl = c.program.states[static_cast<size_t>(state)];
  if (n.attributes.integer("bidirectional") != 0 || decl.value_dim != d)
    return error(Code::unsupported,
                 "{}: the reference target has no bidirectional attention and no value size of its own yet", n.label);
  Tensor y = make_tensor(n.type, c.rows);
  split(c.rows, c.threads, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const Row& row = c.step->rows[static_cast<size_t>(r)];
      KvCache& cache = c.cache(row.sequence, state);
      const Visible seen = causal(row.index, n.attributes.integer("window"));
      AttentionForm form{cache.format(), static_cast<int>(d), static_cast<float>(n.attributes.number("scale")),
                         static_cast<float>(n.attributes.number("soft_cap"))};
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv = h / (heads / decl.heads);
        const scalar::PlainKv plain{0, cache.k(kv).data(), cache.v(kv).data(), cache.k_scale(kv).data(),
                                    cache.v_scale(kv).data()};
        AttentionRow one{in.values[0]->row(r).data() + h * d, y.row(r).data() + h * d, seen.begin, seen.end};
        if (!sinks->empty()) one.sink = (*sinks)[static_cast<size_t>(h)];
        scalar::attention(form, one, plain);
      }
    }
  });
  return y;
}

}  // namespace

Result<std::vector<float>> load_weight(const Program& program, const WeightSet& weights, std::string_view name) {
  const WeightDecl* decl = program.weight(name);
  CHECK(decl != nullptr);
  std::vector<float> values;
  for (const std::string& part : decl->parts.empty() ? std::vector{decl->name} : decl->parts) {
    const auto w = weights.find(part);
    RETURN_IF_ERROR(w);
    const size_t begin = values.size(), inputs = static_cast<size_t>(w->inputs);
    values.resize(begin + static_cast<size_t>(w->outputs) * inputs);
    for (int64_t o = 0; o < w->outputs; ++o)
      dequantise_row(*w, o, std::span(values).subspan(begin + static_cast<size_t>(o) * inputs, inputs));
  }
  return values;
}

Result<Tensor> evaluate(const Node& n, const Operands& in, const Context& c) {
  const Attributes& a = n.attributes;
  switch (n.op) {
    case Op::linear:
      return linear(n, in, 0, c, nullptr);
    case Op::linear_add:
      return linear(n, in, 1, c, in.values[0]);
    case Op::rms_norm:
      return rms_norm(n, in, c);
    case Op::layer_norm:
      return layer_norm(n, in, c);
    case Op::l2_norm: {
      const auto eps = static_cast<float>(a.number("eps"));
      return each_last(*in.values[0], [&](std::span<const float> x, float* y) { scalar::l2_norm(x, eps, y); });
    }
    case Op::hadamard:
      return rotated(n, in, c);
    case Op::rms_norm_quantize: {
      const auto y = rms_norm(n, in, c);
      RETURN_IF_ERROR(y);
      return quantise(*y, a.integer("group"));
    }
    case Op::gated_quantize:
      return quantise(gated(n, in), a.integer("group"));
    case Op::linear_gated_quantize: {
      const auto y = linear_gated(n, in, c);
      RETURN_IF_ERROR(y);
      return quantise(*y, a.integer("group"));
    }
    case Op::quantize:
      return quantise(*in.values[0], a.integer("group"));
    case Op::rope:
      return rope(in);
    case Op::gated:
      return gated(n, in);
    case Op::activate: {
      const auto kind = *scalar::activation(a.text("activation"));
      return each(*in.values[0], [&](float x) { return scalar::activate(kind, x); });
    }
    case Op::soft_cap:
      return each(*in.values[0],
                  [cap = static_cast<float>(a.number("cap"))](float x) { return scalar::soft_cap(x, cap); });
    case Op::scale:
      return each(*in.values[0], [by = static_cast<float>(a.number("by"))](float x) { return x * by; });
    case Op::embed_rows:
      return embed_rows(n, in, c);
    case Op::kv_write:
      return kv_write(n, in, c);
    case Op::attention:
      return attention(n, in, c);
    case Op::conv_update:
      return conv_update(n, in, c);
    case Op::gated_delta:
      return gated_delta(n, in, c);
    case Op::route:
      return route_rows(n, in, c);
    case Op::experts:
      return run_experts(n, in, c);
    default:
      return evaluate_primitive(n, in, c);
  }
}

}  // namespace onw::reference
