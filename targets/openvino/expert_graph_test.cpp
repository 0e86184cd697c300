// Graphs of experts: what they compute beside plain arithmetic, and with the NPU's, in which the plain form fails.
#include "targets/openvino/expert_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "passes/legalize_npu.h"
#include "targets/openvino/expert_forms.h"
#include "targets/openvino/graph_testing.h"
#include "targets/reference/interpreter.h"

namespace onw::openvino {
namespace {

using reference::Inputs;
using reference::Tensor;
using ::testing::ElementsAre;

Inputs inputs_of(const ExpertShape& s) {
  Inputs in{{"x", drawn(DType::f32, {s.all_rows(), s.hidden}, 1, 1)},
            {"scales", drawn(DType::f16, {s.slots, s.scales()}, 0.02f, 2)}};
  for (int64_t slot = 0; slot < s.slots; ++slot) {
    const auto seed = static_cast<uint32_t>(10 + slot);
    in[fmt::format("gate_up.{}", slot)] = drawn(DType::i4, {2 * s.inner, s.hidden}, 4, seed);
    in[fmt::format("down.{}", slot)] = drawn(DType::i4, {s.outputs, s.inner}, 4, seed + 100);
  }
  if (s.biases) in["biases"] = drawn(DType::f32, {s.slots, s.scales()}, 0.3f, 3);
  if (!s.grouped) in["weight"] = drawn(DType::f32, {s.rows, s.slots}, 1, 4);
  if (s.chooses()) {
    in["chosen"] = reference::make_tensor({DType::f32, {s.rows, s.slots}, 0}, 0);
    for (size_t i = 0; i < in["chosen"].f.size(); ++i) in["chosen"].f[i] = i % 3 == 0 ? 0.0f : 1.0f;
    for (size_t i = 0; i < in["chosen"].f.size(); i += 3) in["weight"].f[i] = 0;
  }
  return in;
}

double gated(const ExpertShape& s, double gate, double up) {
  if (s.activation == "silu") return gate / (1 + std::exp(-gate)) * up;
  const double g = std::min(gate, s.limit), u = std::clamp(up, -s.limit, s.limit);
  return (u + 1) * g / (1 + std::exp(-s.alpha * g));
}

// One row through one slot, in double.
std::vector<double> expert(const ExpertShape& s, Inputs& in, int64_t row, int64_t slot) {
  const auto product = [&](const Tensor& codes, const std::vector<double>& x, int64_t output, int64_t place) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += codes.f[static_cast<size_t>(output) * x.size() + i] * x[i];
    const auto at = static_cast<size_t>(slot * s.scales() + place);
    return sum * in["scales"].f[at] + (s.biases ? in["biases"].f[at] : 0.0f);
  };
  const auto of_row = in["x"].row(row);
  const std::vector<double> x(of_row.begin(), of_row.end());
  const Tensor &both = in[fmt::format("gate_up.{}", slot)], &down = in[fmt::format("down.{}", slot)];
  std::vector<double> inner, y;
  for (int64_t i = 0; i < s.inner; ++i)
    inner.push_back(gated(s, product(both, x, i, i), product(both, x, s.inner + i, s.inner + i)));
  for (int64_t o = 0; o < s.outputs; ++o) y.push_back(product(down, inner, o, 2 * s.inner + o));
  return y;
}

float error_of(const Tensor& y, const Tensor& exact) {
  float off = 0, most = 0;
  for (size_t i = 0; i < y.f.size(); ++i) {
    if (!std::isfinite(y.f[i])) return INFINITY;
    off = std::max(off, std::fabs(y.f[i] - exact.f[i]));
    most = std::max(most, std::fabs(exact.f[i]));
  }
  return off / most;
}

TEST(ExpertGraph, sums_what_the_router_weighs_of_each_slot) {
  for (const int64_t rows : {1, 4})
    for (const bool clamped : {false, true}) {
      ExpertShape s{.rows = rows, .slots = 3, .hidden = 16, .inner = 12, .outputs = 10, .biases = clamped};
      if (clamped) s.activation = "swiglu_clamped", s.limit = 1.5, s.alpha = 1.702;
      Inputs in = inputs_of(s);
      const auto y = run_graph(expert_graph(s), in, false);
      ASSERT_TRUE(y) << y.error().message;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> sum(static_cast<size_t>(s.outputs));
        for (int64_t slot = 0; slot < s.slots; ++slot) {
          const double weight = in["weight"].row(r)[static_cast<size_t>(slot)];
          if (s.chooses() && in["chosen"].row(r)[static_cast<size_t>(slot)] == 0) continue;
          const auto one = expert(s, in, r, slot);
          for (size_t o = 0; o < sum.size(); ++o) sum[o] += weight * one[o];
        }
        for (size_t o = 0; o < sum.size(); ++o) EXPECT_NEAR(y->at("y").row(r)[o], sum[o], 1e-4);
      }
    }
}

TEST(ExpertGraph, of_groups_gives_each_slot_rows_of_its_own) {
  const ExpertShape s{.rows = 4, .slots = 2, .grouped = true, .hidden = 16, .inner = 12, .outputs = 10, .biases = true};
  Inputs in = inputs_of(s);
  const auto y = run_graph(expert_graph(s), in, false);
  ASSERT_TRUE(y) << y.error().message;
  ASSERT_EQ(y->at("y").rows(), 8);
  for (int64_t r = 0; r < 8; ++r) {
    const auto one = expert(s, in, r, r / 4);
    for (size_t o = 0; o < one.size(); ++o) EXPECT_NEAR(y->at("y").row(r)[o], one[o], 1e-4);
  }
}

// Codes that lean one way, times large rows, stop at 65504 before their scale makes them small.
TEST(NpuExperts, large_rows_meet_the_codes_divided_by_their_largest_value) {
  for (const bool grouped : {false, true}) {
    const ExpertShape s{.rows = 4, .slots = 2, .grouped = grouped, .hidden = 1024, .inner = 96, .outputs = 64};
    Inputs in = inputs_of(s);
    for (float& x : in["x"].f) x = 30 + x;
    for (float& x : in["gate_up.1"].f) x = std::clamp(x + 4, -8.0f, 7.0f);
    for (float& x : in["scales"].f) x = 0.0002f + std::fabs(x) * 0.01f;
    const Function plain = expert_graph(s);
    const auto legal = legalize_npu(plain);
    ASSERT_TRUE(legal) << legal.error().message;
    const auto exact = run_graph(plain, in, false), by_plain = run_graph(plain, in, true),
               by_legal = run_graph(*legal, in, true);
    ASSERT_TRUE(exact && by_plain && by_legal);
    EXPECT_GT(error_of(by_plain->at("y"), exact->at("y")), 0.05f) << grouped;
    EXPECT_LT(error_of(by_legal->at("y"), exact->at("y")), 1e-2f) << grouped;
  }
}

// An expert that another row chose: of this row it would make what FP16 does not hold, and 0 times that is no number.
TEST(NpuExperts, rows_that_do_not_choose_an_expert_are_not_spoiled_by_it) {
  const ExpertShape s{.rows = 2, .slots = 2, .hidden = 64, .inner = 32, .outputs = 48};
  Inputs in = inputs_of(s);
  for (size_t r = 0; r < 2; ++r)
    for (size_t slot = 0; slot < 2; ++slot) {
      in["chosen"].f[2 * r + slot] = r == slot ? 1.0f : 0.0f;
      in["weight"].f[2 * r + slot] = r == slot ? 0.7f : 0.0f;
    }
  std::ranges::fill(in["x"].row(0), 0.001f);
  std::ranges::fill(in["x"].row(1), 20.0f);
  std::ranges::fill(in["gate_up.0"].f, 7.0f);
  for (int64_t i = 0; i < 2 * s.inner; ++i) in["scales"].f[static_cast<size_t>(i)] = 2;
  const auto legal = legalize_npu(expert_graph(s));
  ASSERT_TRUE(legal);
  const auto exact = run_graph(expert_graph(s), in, false), by_legal = run_graph(*legal, in, true);
  ASSERT_TRUE(exact && by_legal);
  EXPECT_LT(error_of(by_legal->at("y"), exact->at("y")), 1e-2f);
  std::ranges::fill(in["chosen"].f, 1.0f);
  const auto spoiled = run_graph(*legal, in, true);
  ASSERT_TRUE(spoiled);
  EXPECT_TRUE(std::ranges::any_of(spoiled->at("y").row(1), [](float x) { return !std::isfinite(x); }));
}

TEST(ExpertForms, have_slots_for_what_rows_choose_and_batches_for_more_rows) {
  const auto text = [](const ExpertForms& forms) {
    std::vector<std::string> all;
    for (const ExpertShape& s : forms.all()) all.push_back(fmt::format("{}x{}", segment_name(s), s.rows));
    return all;
  };
  const ExpertForms many = expert_forms({}, 8, 128, 512);
  EXPECT_THAT(text(many), ElementsAre("experts.8x1", "experts.8x4", "experts.32x16", "experts.16.groupedx16",
                                      "experts.8.groupedx32", "experts.4.groupedx64", "experts.2.groupedx128"));
  EXPECT_EQ(many.for_rows(1)->rows, 1);
  EXPECT_EQ(many.for_rows(3)->rows, 4);
  EXPECT_EQ(many.for_rows(16)->slots, 32);
  EXPECT_EQ(many.for_rows(17), nullptr);
  EXPECT_EQ(many.batch_for(1).rows, 16);
  EXPECT_EQ(many.batch_for(65).rows, 128);
  EXPECT_EQ(many.batch_for(400).rows, 128);
  EXPECT_THAT(text(expert_forms({}, 2, 5, 20)), ElementsAre("experts.2x1", "experts.2x4", "experts.5x16",
                                                            "experts.5.groupedx16", "experts.5.groupedx32"));
  EXPECT_THAT(text(expert_forms({}, 2, 5, 1)), ElementsAre("experts.2x1"));
}

}  // namespace
}  // namespace onw::openvino
