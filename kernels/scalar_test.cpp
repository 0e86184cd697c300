#include "kernels/scalar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"

namespace onw::scalar {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance to `exact` in units of the last place of FP32 there.
double ulps(float ours, double exact) {
  const float rounded = static_cast<float>(exact);
  if (ours == rounded) return 0;
  const double unit = std::nextafter(std::fabs(rounded), kInfinity) - std::fabs(rounded);
  return std::fabs(ours - exact) / unit;
}

// The worst error over one in `stride` of the floats in [low, high] (of one sign).
double worst_ulps(float low, float high, int stride, float (*ours)(float), const std::function<double(double)>& exact) {
  double worst = 0;
  uint32_t from = std::bit_cast<uint32_t>(low);
  uint32_t to = std::bit_cast<uint32_t>(high);
  if (from > to) std::swap(from, to);
  for (uint64_t bits = from; bits <= to; bits += stride) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    worst = std::max(worst, ulps(ours(x), exact(x)));
  }
  return worst;
}

constexpr int kStride = 997;  // 1 checks every float: 4 minutes

TEST(Exp, is_within_one_ulp_where_its_result_is_normal) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LT(worst_ulps(0.0f, 88.72283f, kStride, exp, exact), 1.0);
  EXPECT_LT(worst_ulps(-0.0f, -87.33654f, kStride, exp, exact), 1.0);
}

TEST(Exp, has_clear_edges) {
  EXPECT_EQ(exp(0), 1);
  EXPECT_EQ(exp(-0.0f), 1);
  EXPECT_EQ(exp(-kInfinity), 0);
  EXPECT_EQ(exp(-87.33655f), 0);
  EXPECT_GE(exp(-87.33654f), 0x1p-126f);
  EXPECT_LT(exp(88.72283f), kInfinity);
  EXPECT_EQ(exp(88.72284f), kInfinity);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp(kNan)));
  EXPECT_TRUE(std::isnan(exp(std::bit_cast<float>(0x7fc00fffu))));  // whatever its payload
  EXPECT_TRUE(std::isnan(exp(std::bit_cast<float>(0xffffffffu))));
}

TEST(Tanh, is_within_three_ulp_and_odd) {
  EXPECT_LT(worst_ulps(0.0f, 20.0f, kStride, tanh, [](double x) { return std::tanh(x); }), 3.0);
  for (const float x : {0.0f, 1e-40f, 0.3f, 0.625f, 2.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(tanh(-x), -tanh(x));
    EXPECT_LE(tanh(x), 1);
  }
  EXPECT_EQ(tanh(kInfinity), 1);
  EXPECT_TRUE(std::isnan(tanh(kNan)));
}

TEST(Sigmoid, is_within_three_ulp) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst_ulps(0.0f, 90.0f, kStride, sigmoid, exact), 3.0);
  EXPECT_LT(worst_ulps(-0.0f, -86.0f, kStride, sigmoid, exact), 3.0);
  EXPECT_EQ(sigmoid(-kInfinity), 0);
  EXPECT_EQ(sigmoid(kInfinity), 1);
}

TEST(Softplus, is_within_four_ulp_and_never_negative) {
  const auto exact = [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); };
  EXPECT_LT(worst_ulps(0.0f, 100.0f, kStride, softplus, exact), 4.0);
  EXPECT_LT(worst_ulps(-0.0f, -86.0f, kStride, softplus, exact), 4.0);
  EXPECT_EQ(softplus(-1000), 0);
  EXPECT_EQ(softplus(1000), 1000);
}

// Errors of the gated activations are relative to |x|, which is what their product with `up` is scaled by.
double worst_against_x(float (*ours)(float), const std::function<double(double)>& exact) {
  double worst = 0;
  for (float x = -30; x < 30; x += 0.00037f)
    worst = std::max(worst, std::fabs(ours(x) - exact(x)) / (std::fabs(static_cast<double>(x)) + 1e-30));
  return worst;
}

TEST(Activations, are_close_to_their_definitions) {
  EXPECT_LT(worst_against_x(silu, [](double x) { return x / (1 + std::exp(-x)); }), 0x1p-22);
  EXPECT_LT(worst_against_x(gelu_erf, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }), 0x1p-23);
  EXPECT_LT(worst_against_x(gelu_tanh,
                            [](double x) {
                              const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                              return x / 2 * (1 + std::tanh(u));
                            }),
            0x1p-22);
}

TEST(Activations, are_finite_for_every_finite_number) {
  for (const auto activation :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::sigmoid, Activation::relu})
    for (const float x : {0.0f, 1e-45f, 1e-38f, 1.0f, 14.5f, 100.0f, 1e10f, 1e19f, 1e30f, 3.4e38f}) {
      EXPECT_TRUE(std::isfinite(activate(activation, x))) << x;
      EXPECT_TRUE(std::isfinite(activate(activation, -x))) << -x;
      if (activation != Activation::sigmoid) EXPECT_LE(std::fabs(activate(activation, -x)), x);
    }
  EXPECT_EQ(gelu_tanh(1e30f), 1e30f);
  EXPECT_EQ(gelu_erf(1e30f), 1e30f);
  EXPECT_EQ(silu(1e30f), 1e30f);
}

TEST(Gated, multiplies_by_up_and_clamps_only_where_asked) {
  const Gate clamped{Activation::swiglu_clamped, 7, 1.702f};
  const auto exact = [](double g, double u) { return (u + 1) * g / (1 + std::exp(-1.702 * g)); };
  EXPECT_NEAR(gated(clamped, 2, 3), exact(2, 3), 1e-6);
  EXPECT_NEAR(gated(clamped, 50, 30), exact(7, 7), 1e-5);
  EXPECT_NEAR(gated(clamped, -50, -30), exact(-50, -7), 1e-30);
  EXPECT_EQ(gated({Activation::silu}, 50, 30), 1500);
  EXPECT_EQ(gated({Activation::relu}, -1, 30), 0);
}

TEST(Activations, have_the_names_of_the_graph) {
  for (const std::string_view known : {"silu", "gelu_tanh", "gelu", "swiglu_clamped", "sigmoid", "relu"})
    EXPECT_EQ(name(*activation(known)), known);
  EXPECT_FALSE(activation("swish"));
}

TEST(SoftCap, is_linear_near_zero_and_never_beyond_the_cap) {
  EXPECT_EQ(soft_cap(0, 30), 0);
  EXPECT_NEAR(soft_cap(0.01f, 30), 0.01f, 1e-8);
  EXPECT_NEAR(soft_cap(20, 30), 30 * std::tanh(20.0 / 30), 1e-5);
  EXPECT_EQ(soft_cap(-1e9f, 30), -30);
}

std::vector<float> random_row(int n, int seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

TEST(Sum, adds_by_index_mod_16_and_folds_8_4_2_1) {
  std::vector<float> x(37);
  for (int i = 0; i < 37; i++) x[i] = std::ldexp(1.0f, (i * 7) % 30) + 1;
  float partial[16] = {};
  for (int i = 0; i < 37; i++) partial[i % 16] += x[i];
  const auto p = [&](int i) { return partial[i]; };
  const auto quad = [&](int i) { return (p(i) + p(i + 8)) + (p(i + 4) + p(i + 12)); };
  EXPECT_EQ(sum(x), (quad(0) + quad(2)) + (quad(1) + quad(3)));
  EXPECT_EQ(sum({}), 0);
}

TEST(Norms, agree_with_double) {
  const auto x = random_row(100, 1, 3);
  const auto w = random_row(100, 2);
  const auto b = random_row(100, 3);
  double mean = 0, squares = 0, variance = 0;
  for (const float v : x) mean += v / 100.0, squares += double{v} * v;
  for (const float v : x) variance += (v - mean) * (v - mean) / 100;
  std::vector<float> rms(100), layer(100), plain(100), l2(100), bare(100);
  rms_norm(x, w.data(), 1e-5f, rms.data());
  rms_norm(x, nullptr, 1e-5f, bare.data());
  layer_norm(x, w.data(), b.data(), 1e-5f, layer.data());
  layer_norm(x, w.data(), nullptr, 1e-5f, plain.data());
  l2_norm(x, 1e-6f, l2.data());
  for (int i = 0; i < 100; i++) {
    EXPECT_NEAR(rms[i], x[i] / std::sqrt(squares / 100 + 1e-5) * w[i], 2e-6);
    EXPECT_NEAR(layer[i], (x[i] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i], 2e-6);
    EXPECT_NEAR(plain[i], (x[i] - mean) / std::sqrt(variance + 1e-5) * w[i], 2e-6);
    EXPECT_NEAR(bare[i], x[i] / std::sqrt(squares / 100 + 1e-5), 2e-6);
    EXPECT_NEAR(l2[i], x[i] / std::sqrt(squares + 1e-6), 1e-6);
  }
}

TEST(Rope, rotates_half_split_pairs_and_leaves_the_rest) {
  std::vector<float> x = {1, 2, 3, 4, 5};
  rope(x.data(), std::vector<float>{0.6f, 1}, std::vector<float>{0.8f, 0});
  EXPECT_FLOAT_EQ(x[0], 1 * 0.6f - 3 * 0.8f);
  EXPECT_FLOAT_EQ(x[2], 3 * 0.6f + 1 * 0.8f);
  EXPECT_EQ(x[1], 2);
  EXPECT_EQ(x[3], 4);
  EXPECT_EQ(x[4], 5);
}

TEST(Softmax, sums_to_one_and_ignores_minus_infinity) {
  std::vector<float> p = {1, -kInfinity, 3, 200};
  softmax(p, p.data());
  EXPECT_EQ(p[1], 0);
  EXPECT_FLOAT_EQ(p[0] + p[2] + p[3], 1);
}

TEST(Quantise, keeps_the_largest_at_127_and_rounds_ties_to_even) {
  const std::vector<float> x = {127, -127, 0.5f, 1.5f, -2.5f, 126.5f, 3};
  int8_t codes[7];
  EXPECT_EQ(quantise(x, codes), 1);
  EXPECT_THAT(codes, ::testing::ElementsAre(127, -127, 0, 2, -2, 126, 3));
}

TEST(Quantise, never_leaves_the_codes_of_127) {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; i++) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    int8_t code = 0;
    const float scale = quantise({&x, 1}, &code);
    if (!std::isfinite(x) || std::fabs(x) < 0x1p-100f) {
      ASSERT_EQ(code, 0);
    } else {
      ASSERT_EQ(code, x < 0 ? -127 : 127);
      ASSERT_NEAR(code * scale / x, 1, 1e-6);
    }
  }
}

TEST(Quantise, gives_zero_for_tiny_groups_and_shows_what_is_not_finite) {
  int8_t codes[3];
  EXPECT_EQ(quantise(std::vector<float>{0x1p-101f, 0, -1e-45f}, codes), 0);
  EXPECT_THAT(codes, ::testing::ElementsAre(0, 0, 0));
  EXPECT_EQ(quantise(std::vector<float>{1, kInfinity, 2}, codes), kInfinity);
  EXPECT_THAT(codes, ::testing::ElementsAre(0, 0, 0));
  EXPECT_TRUE(std::isnan(quantise(std::vector<float>{1, kNan, kInfinity}, codes)));
  EXPECT_THAT(codes, ::testing::ElementsAre(0, 0, 0));
}

TEST(QuantiseKv, has_a_normal_half_as_scale_and_stays_within_127) {
  for (int seed = 0; seed < 200; seed++) {
    const auto x = random_row(64, seed, std::ldexp(1.0f, seed % 40 - 30));
    int8_t codes[64];
    const float scale = half_to_float(quantise_kv(x, codes));
    EXPECT_GE(scale, 0x1p-14f);
    for (int i = 0; i < 64; i++) {
      EXPECT_GE(codes[i], -127);
      EXPECT_NEAR(codes[i] * scale, x[i], scale * 0.57);
    }
  }
  int8_t code;
  EXPECT_EQ(half_to_float(quantise_kv(std::vector<float>{1e9f}, &code)), kInfinity);
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace onw::scalar
