// The gated delta rule and the norm behind it with the NPU's arithmetic: small results are lost in the plain form, and
// stay with passes/delta_scales.
#include "passes/delta_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/text.h"
#include "graph/verifier.h"
#include "passes/decompose.h"
#include "passes/legalize_npu.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/npu.h"

namespace onw::reference {
namespace {

constexpr int64_t kHeads = 4, kDim = 64;

// As models/gated_delta writes it, from q and k of unit length to the norm of each head.
std::string mixer(bool normed) {
  return fmt::format(
      "program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n"
      "state d delta layer=0 heads={0} head_dim={1} value_dim={1} key_heads={0}\nf {{\n"
      "  %0 = input \"q\" : f32[S,{0},{1}]\n  %1 = input \"k\" : f32[S,{0},{1}]\n  %2 = input \"v\" : f32[S,{0},{1}]\n"
      "  %3 = input \"g\" : f32[S,{0}]\n  %4 = input \"beta\" : f32[S,{0}]\n"
      "  %5 = scale(%0; by={2}) \"q_scaled\" : f32[S,{0},{1}]\n"
      "  %6 = gated_delta(%5, %1, %2, %3, %4; state=\"d\") \"delta\" : f32[S,{0},{1}]\n{3}",
      kHeads, kDim, 1 / std::sqrt(static_cast<double>(kDim)),
      normed ? fmt::format("  %7 = rms_norm(%6; eps=1e-06) \"y\" : f32[S,{0},{1}]\n  return y=%7\n}}\n", kHeads, kDim)
             : std::string("  return y=%6\n}\n"));
}

struct Case {
  float v = 0.02f;          // deviation of values; states and results are as small
  float log_decay = -0.1f;  // of the first head; others decay faster
  int64_t rows = 16;
};

Inputs inputs_of(const Case& c, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  Inputs in;
  for (const char* name : {"q", "k", "v"}) {
    Tensor t = make_tensor({DType::f32, {c.rows, kHeads, kDim}, 0}, 0);
    for (float& x : t.f) x = draw(random) * (name[0] == 'v' ? c.v : 1.0f / std::sqrt(static_cast<float>(kDim)));
    in[name] = std::move(t);
  }
  for (const char* name : {"g", "beta"}) {
    Tensor t = make_tensor({DType::f32, {c.rows, kHeads}, 0}, 0);
    for (size_t i = 0; i < t.f.size(); ++i)
      t.f[i] = name[0] == 'g' ? c.log_decay * static_cast<float>(1 + i % kHeads * 4)
                              : 0.3f + 0.1f * static_cast<float>(i % 5);
    in[name] = std::move(t);
  }
  if (c.rows > 4)
    in["rows_used"] =
        Tensor{.type = {DType::f32, {c.rows, 1}, 0}, .f = std::vector<float>(static_cast<size_t>(c.rows), 1)};
  for (auto& [name, t] : in) npu_round(t);  // what the inputs cannot hold is not the rule's loss
  return in;
}

Tensor state(float scale, float sigma) {
  std::mt19937 random(9);
  std::normal_distribution<float> draw(0, sigma);
  Tensor t = make_tensor({DType::f32, {kHeads, kDim, kDim}, 0}, 0);
  for (float& x : t.f) x = draw(random) * scale;
  return t;
}

struct Results {
  Tensor exact, plain, rewritten;
};

// The difference over the values, both as the root of the mean square of all.
double error_of(const Tensor& y, const Tensor& exact) {
  double off = 0, whole = 0;
  for (size_t i = 0; i < exact.f.size(); ++i) {
    if (!std::isfinite(y.f[i])) return INFINITY;
    off += std::pow(static_cast<double>(y.f[i]) - static_cast<double>(exact.f[i]), 2);
    whole += std::pow(static_cast<double>(exact.f[i]), 2);
  }
  return std::sqrt(off / whole);
}

Results run(const Case& c, const std::string& output, bool normed = true) {
  Results r;
  const auto program = parse_program(mixer(normed));
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return r;
  const Function scaled = delta_scales(program->functions[0]);
  const auto result = [&](const Function& coarse, bool npu, float scale) {
    auto f = decompose(*program, coarse, {.rows = c.rows});
    EXPECT_TRUE(f) << f.error().message;
    if (npu) f = legalize_npu(*f);
    EXPECT_TRUE(f && verify(*f, *program, Level::primitive));
    Inputs in = inputs_of(c, 3);
    in["d.before"] = state(scale, c.v / 8);
    auto y = run_function(*f, std::move(in), {.program = *program, .weights = {}, .rows = c.rows, .npu = npu},
                          CancelToken(), false);
    EXPECT_TRUE(y) << y.error().message;
    Tensor t = y ? y->at(output) : Tensor{};
    if (output == "d.after" || output == "d.u")
      for (float& x : t.f) x /= scale;
    return t;
  };
  r = {result(program->functions[0], false, 1), result(program->functions[0], true, 1),
       result(scaled, true, kDeltaStateScale)};
  EXPECT_LT(error_of(result(scaled, false, kDeltaStateScale), r.exact), 1e-5f)
      << "the same but for the NPU's arithmetic";
  return r;
}

class DeltaScales : public testing::TestWithParam<int64_t> {};

TEST_P(DeltaScales, small_heads_keep_their_digits) {
  for (const float v : {0.02f, 0.004f}) {
    const Case c{.v = v, .rows = GetParam()};
    const Results y = run(c, "y"), state = run(c, "d.after"), u = run(c, "d.u");
    EXPECT_GT(error_of(y.plain, y.exact), 0.04) << v;
    EXPECT_LT(error_of(y.rewritten, y.exact), 1.2e-3) << v;
    EXPECT_LT(error_of(state.rewritten, state.exact), 1.2e-3) << v;
    EXPECT_LT(error_of(u.rewritten, u.exact), 1.2e-3) << v;
  }
}

// What a head that forgets fast keeps is small, whatever its values are.
TEST_P(DeltaScales, decays_from_slow_to_fast_stay_right) {
  for (const float log_decay : {-1e-3f, -0.02f, -1.0f, -20.0f}) {
    const Results y = run({.v = 1, .log_decay = log_decay, .rows = GetParam()}, "y");
    if (log_decay <= -1 && GetParam() > 1) EXPECT_GT(error_of(y.plain, y.exact), 5e-3) << log_decay;
    EXPECT_LT(error_of(y.rewritten, y.exact), 1.6e-3) << log_decay;
  }
}

TEST_P(DeltaScales, large_values_do_not_overflow) {
  const Results y = run({.v = 20, .rows = GetParam()}, "y");
  EXPECT_LT(error_of(y.rewritten, y.exact), 1.6e-3);
}

TEST_P(DeltaScales, what_no_norm_reads_is_divided_again) {
  const Results y = run({.v = 1, .rows = GetParam()}, "y", false);
  EXPECT_LT(error_of(y.rewritten, y.exact), 1.6e-3);
}

INSTANTIATE_TEST_SUITE_P(Rows, DeltaScales, testing::Values(1, 4, 16, 64));

// Why a chunk sums the logarithms between any two rows by themselves: running sums are as large as all before, and what
// FP16 keeps of them is off by more than a slow decay.
TEST(DeltaForm, differences_of_running_sums_would_be_wrong) {
  const float before = npu_value(-20.0f * 12), here = npu_value(before - 0.05f);
  EXPECT_GT(std::fabs(std::exp(here - before) - std::exp(-0.05f)), 0.04f);
  EXPECT_NEAR(std::exp(npu_value(-0.05f)), std::exp(-0.05f), 1e-4f);
}

}  // namespace
}  // namespace onw::reference
