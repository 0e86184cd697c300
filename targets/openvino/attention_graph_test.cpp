// Attention over a chunk with the NPU's arithmetic: the plain graph fails, the rewritten one stays near FP32.
#include "targets/openvino/attention_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "passes/legalize_npu.h"
#include "targets/openvino/graph_testing.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"

namespace onw::openvino {
namespace {

using reference::Inputs;
using reference::Tensor;

// Row r sees the first r positions: row 0 sees nothing here.
Inputs inputs_of(const AttentionShape& a, float scale_of_keys) {
  const bool int8 = a.kv == KvFormat::int8;
  const DType element = int8 ? DType::i8 : DType::f16;
  Inputs in{{"q", drawn(DType::f32, {a.rows, a.heads, a.head_dim}, 2, 1)},
            {"k", drawn(element, {a.kv_heads, a.length, a.head_dim}, int8 ? 60 : scale_of_keys * 60, 2)},
            {"v", drawn(element, {a.kv_heads, a.value_dim, a.length}, int8 ? 60 : 1, 3)},
            {"mask", reference::make_tensor({DType::f32, {a.rows, a.length}, 0}, 0)}};
  if (int8) {
    in["k_scale"] = reference::make_tensor({DType::f16, {a.kv_heads, 1, a.length}, 0}, 0);
    in["v_scale"] = in["k_scale"];
    std::ranges::fill(in["k_scale"].f, scale_of_keys);
    std::ranges::fill(in["v_scale"].f, 0x1p-6f);
  }
  for (int64_t r = 0; r < a.rows; ++r) std::ranges::fill(in["mask"].row(r).subspan(static_cast<size_t>(r)), kMasked);
  return in;
}

// The largest difference of o over rows that see something; infinite where anything is no number.
float error_of(const AttentionShape& a, const Inputs& y, const Inputs& exact) {
  float off = 0, most = 0;
  const Tensor& o = y.at("o");
  for (const char* name : {"m", "l", "o"})
    for (const float x : y.at(name).f)
      if (!std::isfinite(x)) return INFINITY;
  for (size_t i = 0; i < o.f.size(); ++i) {
    const size_t row = i / static_cast<size_t>(a.value_dim);
    if (row % static_cast<size_t>(a.rows) == 0) continue;
    const float judge = exact.at("o").f[i];
    off = std::max(off, std::fabs(o.f[i] - judge));
    most = std::max(most, std::fabs(judge));
  }
  return off / most;
}

struct Errors {
  float plain = 0, legal = 0;
};
Errors errors(const AttentionShape& a, const Inputs& inputs) {
  const Function plain = attention_graph(a);
  const auto legal = legalize_npu(plain);
  EXPECT_TRUE(legal) << legal.error().message;
  const auto exact = run_graph(plain, inputs, false), by_plain = run_graph(plain, inputs, true),
             by_legal = run_graph(*legal, inputs, true);
  EXPECT_TRUE(exact && by_plain && by_legal);
  return {error_of(a, *by_plain, *exact), error_of(a, *by_legal, *exact)};
}

// Scores that are all low: beside a mask of -65504 they are -infinity, and their difference is no number.
TEST(NpuAttention, rows_that_see_nothing_of_a_chunk_stay_finite) {
  for (const KvFormat kv : {KvFormat::f16, KvFormat::int8}) {
    AttentionShape a{
        .rows = 3, .heads = 4, .kv_heads = 2, .head_dim = 64, .value_dim = 64, .length = 32, .scale = 0.125};
    a.kv = kv;
    Inputs inputs = inputs_of(a, 0.1f);
    std::ranges::fill(inputs["q"].f, 4.0f);
    std::ranges::fill(inputs["k"].f, kv == KvFormat::int8 ? -40.0f : -4.0f);
    const Errors e = errors(a, inputs);
    EXPECT_TRUE(std::isinf(e.plain)) << name(kv);
    EXPECT_LT(e.legal, 1e-2f) << name(kv);
  }
}

// Heads of 512 values: beyond 256 columns the device computes something else.
TEST(NpuAttention, wide_heads_go_in_parts) {
  for (const KvFormat kv : {KvFormat::f16, KvFormat::int8}) {
    AttentionShape a{
        .rows = 2, .heads = 2, .kv_heads = 1, .head_dim = 64, .value_dim = 512, .length = 16, .scale = 0.125};
    a.kv = kv;
    const Errors e = errors(a, inputs_of(a, 0.01f));
    EXPECT_TRUE(std::isinf(e.plain)) << name(kv);
    EXPECT_LT(e.legal, 1e-2f) << name(kv);
  }
}

// Sums of codes that lean one way, times large queries, stop at 65504 before their scale makes them small.
TEST(NpuAttention, large_queries_meet_the_codes_of_keys) {
  AttentionShape a{.rows = 3, .heads = 2, .kv_heads = 1, .head_dim = 128, .value_dim = 64, .length = 32, .scale = 1};
  a.kv = KvFormat::int8;
  Inputs inputs = inputs_of(a, 1e-4f);
  for (float& x : inputs["q"].f) x = 20 + x;
  for (float& x : inputs["k"].f) x = std::clamp(x + 60, -127.0f, 127.0f);
  const Errors e = errors(a, inputs);
  EXPECT_GT(e.plain, 0.1f);
  EXPECT_LT(e.legal, 1e-2f);
}

// Over a long chunk that is seen evenly each share is small, and the sum of all values is large.
TEST(NpuAttention, long_chunks_neither_overflow_nor_vanish) {
  AttentionShape a{
      .rows = 2, .heads = 1, .kv_heads = 1, .head_dim = 32, .value_dim = 32, .length = 16384, .scale = 0.05};
  a.kv = KvFormat::int8;
  Inputs inputs = inputs_of(a, 0.002f);  // scores near zero
  std::ranges::fill(inputs["mask"].f, 0.0f);
  for (float& x : inputs["v"].f) x = std::clamp(x + 80, -127.0f, 127.0f);
  std::ranges::fill(inputs["v_scale"].f, 4.0f);
  EXPECT_LT(errors(a, inputs).legal, 1e-2f);
}

}  // namespace
}  // namespace onw::openvino
