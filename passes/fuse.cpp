#include "passes/fuse.h"

#include <optional>

#include "graph/ops.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

// quantize(first(...)) -> one op with the attributes of both.
std::optional<Node> with_quantize(const Function& f, const Uses& uses, Value v) {
  const Node& q = f.node(v);
  if (q.op != Op::quantize || !uses.only_user(q.inputs[0], v)) return std::nullopt;
  const Node& first = f.node(q.inputs[0]);
  Node fused = first;
  if (first.op == Op::rms_norm && first.type.shape.size() == 2) {
    fused.op = Op::rms_norm_quantize;
  } else if (first.op == Op::gated) {
    fused.op = Op::gated_quantize;
  } else {
    return std::nullopt;
  }
  fused.attributes.set("group", q.attributes.integer("group"));
  fused.type = q.type;
  return fused;
}

// add(residual, linear(x, w, bias?)) -> linear_add(residual, x, w, bias?), whichever side of the sum the product stands
// on.
std::optional<Node> with_residual(const Function& f, const Uses& uses, Value v) {
  const Node& sum = f.node(v);
  if (sum.op != Op::add) return std::nullopt;
  for (const size_t side : {1, 0}) {
    const Value product = sum.inputs[side], residual = sum.inputs[1 - side];
    const Node& linear = f.node(product);
    if (linear.op != Op::linear || !uses.only_user(product, v) || f.type(residual) != sum.type) continue;
    if (f.node(residual).op == Op::weight || f.node(residual).op == Op::constant) continue;
    Node fused{Op::linear_add, sum.label, {residual}, linear.attributes, sum.type, {}};
    fused.inputs.insert(fused.inputs.end(), linear.inputs.begin(), linear.inputs.end());
    return fused;
  }
  return std::nullopt;
}

// gated_quantize(the first half of linear(x, w, bias?), the other half) -> linear_gated_quantize(x, w, bias?): a kernel
// that works by groups of outputs then never writes both halves to memory. It takes codes: rows whose width no group
// divides stay FP32, and their products steps of their own.
std::optional<Node> with_product(const Function& f, const Uses& uses, Value v) {
  const Node& gated = f.node(v);
  if (gated.op != Op::gated_quantize) return std::nullopt;
  const Value gate = gated.inputs[0], up = gated.inputs[1];
  const int64_t width = gated.type.last();
  const auto half = [&](Value s, int64_t begin) {
    const Node& n = f.node(s);
    return n.op == Op::slice && uses.only_user(s, v) && n.attributes.integer("axis") == 1 &&
           n.attributes.integer("begin") == begin && n.attributes.integer("end") == begin + width;
  };
  if (!half(gate, 0) || !half(up, width) || f.node(gate).inputs[0] != f.node(up).inputs[0]) return std::nullopt;
  const Value product = f.node(gate).inputs[0];
  const Node& linear = f.node(product);
  const auto& users = uses.users[static_cast<size_t>(product.id)];
  if (linear.op != Op::linear || f.type(linear.inputs[0]).dtype != DType::q8 || linear.type.last() != 2 * width ||
      users.size() != 2 || uses.outputs[static_cast<size_t>(product.id)] != 0)
    return std::nullopt;
  return Node{Op::linear_gated_quantize, gated.label, linear.inputs, gated.attributes, gated.type, {}};
}

// Every node that `combine` makes one of several.
template <class Combine>
Function fuse(const Function& f, Combine combine) {
  const Uses uses(f);
  Rewriter r(f);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const Value v{static_cast<int32_t>(i)};
    auto fused = combine(f, uses, v);
    if (!fused) {
      r.copy(v);
      continue;
    }
    for (Value& input : fused->inputs) input = r.map(input);
    r.replace(v, r.append(std::move(*fused)));
  }
  return r.finish();
}

}  // namespace

Program fuse(const Program& program) {
  Program out = program;
  for (Function& f : out.functions) {
    f = fuse(f, [](const Function& from, const Uses& uses, Value v) {
      const auto fused = with_quantize(from, uses, v);
      return fused ? fused : with_residual(from, uses, v);
    });
    f = fuse(f, with_product);
  }
  return out;
}

}  // namespace onw
