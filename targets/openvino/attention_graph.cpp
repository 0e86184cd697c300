#include "targets/openvino/attention_graph.h"

#include "base/result.h"
#include "graph/builder.h"
#include "graph/ops.h"
#include "graph/verifier.h"

namespace onw::openvino {

Function attention_graph(const AttentionShape& a) {
  const bool int8 = a.kv == KvFormat::int8;
  const DType element = int8 ? DType::i8 : a.kv == KvFormat::f16 ? DType::f16 : DType::f32;
  const int64_t each = a.heads / a.kv_heads, grouped = each * a.rows;
  Program program;
  Builder b(program, "attention");
  const auto f32 = [&](const char* step, Value x) {
    return b.type(x).dtype == DType::f32 ? x : b.node(Op::convert, step, {x}, {{"dtype", std::string("f32")}});
  };
  const auto by = [&](const char* step, Value x, double factor) {
    return factor == 1 ? x
                       : b.node(Op::multiply, step,
                                {x, b.constant(std::string(step) + ".by", {1}, {static_cast<float>(factor)})});
  };
  const Value q = b.input("q", {DType::f32, {a.rows, a.heads, a.head_dim}});
  const Value k = b.input("k", {element, {a.kv_heads, a.length, a.head_dim}});
  const Value v = b.input("v", {element, {a.kv_heads, a.value_dim, a.length}});
  // The query heads of one KV head side by side: one product serves them all.
  const Value heads_first = b.node(Op::transpose, "q_heads", {q}, {{"order", std::vector<int64_t>{1, 0, 2}}});
  const Value queries = b.reshape("q_groups", by("q_scaled", heads_first, a.scale), {a.kv_heads, grouped, a.head_dim});
  Value s = b.node(Op::matmul, "scores", {queries, f32("k_f32", k)}, {{"transpose_b", int64_t{1}}});
  Value v_scale;
  if (int8) {
    const Type scales{DType::f16, {a.kv_heads, 1, a.length}};
    s = b.node(Op::multiply, "scores_scaled", {s, f32("k_scale_f32", b.input("k_scale", scales))});
    v_scale = f32("v_scale_f32", b.input("v_scale", scales));
  }
  const Value mask = b.input("mask", {DType::f32, {a.rows, a.length}});
  if (a.soft_cap > 0)
    s = by("scores_capped", b.node(Op::tanh, "scores_tanh", {by("scores_uncapped", s, 1 / a.soft_cap)}), a.soft_cap);
  s = b.add("scores_masked", b.reshape("scores_heads", s, {a.heads, a.rows, a.length}), mask);
  const Value m = b.node(Op::reduce_max, "m", {s}, {{"axis", int64_t{-1}}});
  Value p = b.node(Op::exp, "p", {b.node(Op::subtract, "scores_below", {s, m})});
  const Value l = b.node(Op::reduce_sum, "l", {p}, {{"axis", int64_t{-1}}});
  // Shares that sum to at most 16: over 16384 positions FP16 holds neither 1 / l nor the sum of all values.
  const Value most = b.constant("most", {1}, {16});
  const Value less = b.node(Op::divide, "less", {most, b.node(Op::maximum, "l_above", {l, most})});
  p = b.reshape("p_groups", b.node(Op::multiply, "shares", {p, less}), {a.kv_heads, grouped, a.length});
  if (int8) p = b.node(Op::multiply, "p_scaled", {p, v_scale});
  Value o = b.node(Op::matmul, "o_groups", {p, f32("v_f32", v)}, {{"transpose_b", int64_t{1}}});
  o = b.reshape("o_heads", o, {a.heads, a.rows, a.value_dim});
  b.output("m", m);
  b.output("l", l);
  b.output("o", b.node(Op::divide, "o", {o, b.node(Op::minimum, "l_below", {l, most})}));
  static_cast<void>(b.finish());  // which looks for the ops that families write
  CHECK(program.functions.size() == 1 && verify(program.functions.front(), program, Level::primitive));
  return std::move(program.functions.front());
}

AttentionShape attention_shape(const Node& n, const StateDecl& state, KvFormat kv) {
  return {.heads = n.type.shape[1],
          .kv_heads = state.heads,
          .head_dim = state.head_dim,
          .value_dim = state.value_dim,
          .scale = n.attributes.number("scale", 1),
          .soft_cap = n.attributes.number("soft_cap"),
          .kv = kv};
}

}  // namespace onw::openvino
