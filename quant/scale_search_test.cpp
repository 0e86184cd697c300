#include "quant/scale_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "quant/quantise.h"
#include "quant/unpack.h"

namespace onw {
namespace {

constexpr CodeRange kFourBits{-8, 7};

std::vector<float> normal(int64_t count, uint32_t seed, float sigma = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, sigma);
  std::vector<float> w(count);
  for (float& x : w) x = draw(random);
  return w;
}

float largest(std::span<const float> w) {
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  return amax;
}

// What a group costs with the scale of its largest weight, and with the searched one.
struct Costs {
  float plain, searched;
};
Costs costs(std::span<const float> w, std::span<const float> importance = {}) {
  const uint16_t start = float_to_half(largest(w) / 7);
  const uint16_t found = search_scale(w, importance, start, kFourBits);
  EXPECT_GE(half_to_float(found), 0.0f);
  EXPECT_TRUE(std::isfinite(half_to_float(found)));
  return {weighted_error(w, importance, half_to_float(start), kFourBits),
          weighted_error(w, importance, half_to_float(found), kFourBits)};
}

TEST(ScaleSearch, lowers_the_error_of_random_groups) {
  for (const int64_t group : {32, 64, 128, 4096}) {
    double plain = 0, searched = 0;
    for (uint32_t seed = 0; seed < 64; ++seed) {
      const Costs c = costs(normal(group, seed));
      EXPECT_LE(c.searched, c.plain) << group << ", seed " << seed;
      plain += c.plain;
      searched += c.searched;
    }
    EXPECT_LT(searched, 0.9 * plain) << group;
  }
}

struct Hard {
  std::string name;
  std::function<void(std::vector<float>&)> make;
};

TEST(ScaleSearch, never_raises_the_error_of_hard_groups) {
  const std::vector<Hard> groups = {
      {"zeros", [](auto& w) { std::fill(w.begin(), w.end(), 0.0f); }},
      {"one weight", [](auto& w) { std::fill(w.begin(), w.end(), 0.0f), w[7] = -0.3f; }},
      {"an outlier of hundred sigma", [](auto& w) { w[3] = 2.0f; }},
      {"two outliers of both signs", [](auto& w) { w[3] = 1.0f, w[4] = -1.1f; }},
      {"all alike", [](auto& w) { std::fill(w.begin(), w.end(), 0.37f); }},
      {"all at the least code", [](auto& w) { std::fill(w.begin(), w.end(), -0.125f); }},
      {"near the largest scale of F16", [](auto& w) { w[0] = 458000.0f; }},
      {"scales that are subnormal in F16",
       [](auto& w) {
         for (float& x : w) x *= 1e-5f;
       }},
      {"scales that vanish in F16",
       [](auto& w) {
         for (float& x : w) x *= 1e-9f;
       }},
      {"denormal weights",
       [](auto& w) {
         for (float& x : w) x *= 1e-38f;
       }},
      {"halves between codes",
       [](auto& w) {
         for (size_t i = 0; i < w.size(); ++i) w[i] = (static_cast<float>(i % 15) - 7) + 0.5f;
       }},
  };
  for (const Hard& hard : groups) {
    std::vector<float> w = normal(128, 1);
    hard.make(w);
    const Costs c = costs(w);
    EXPECT_LE(c.searched, c.plain) << hard.name;
    EXPECT_FALSE(std::isnan(c.searched)) << hard.name;
  }
}

TEST(ScaleSearch, counts_what_is_important) {
  const auto w = normal(128, 3);
  std::vector<float> importance(128, 1e-3f);
  for (int i = 0; i < 128; i += 8) importance[i] = 1.0f;
  const Costs c = costs(w, importance);
  EXPECT_LT(c.searched, 0.7f * c.plain);  // sixteen weights share a scale of their own
  const std::vector<float> none(128, 0.0f);
  EXPECT_EQ(search_scale(w, none, 0x2000, kFourBits), 0x2000);  // nothing matters: nothing moves
}

TEST(ScaleSearch, leaves_scales_alone_that_cannot_be_used) {
  EXPECT_EQ(search_scale(std::vector<float>(32, 0.0f), {}, 0, kFourBits), 0);
  EXPECT_EQ(search_scale(std::vector<float>(32, 3e38f), {}, 0x7c00, kFourBits), 0x7c00);
}

TEST(ScaleSearch, keeps_the_values_of_groups_that_are_scale_times_code_already) {
  std::mt19937 random(11);
  for (int most = 1; most <= 8; ++most) {
    std::vector<float> w(128);
    const float scale = half_to_float(static_cast<uint16_t>(0x1000 + random() % 0x3000));
    for (float& x : w) x = scale * static_cast<float>(std::uniform_int_distribution(-most, std::min(most, 7))(random));
    w[5] = -scale * static_cast<float>(most);
    const float found = half_to_float(search_scale(w, {}, float_to_half(largest(w) / 7), kFourBits));
    for (const float x : w) EXPECT_EQ(found * nearest_code(x / found, kFourBits), x) << most;
  }
}

TEST(ScaleSearch, makes_quantising_twice_the_same_as_once) {
  for (const WeightFormat format :
       {WeightFormat::q4g128, WeightFormat::q4sg64, WeightFormat::q4g32, WeightFormat::q4c}) {
    std::vector<float> w = normal(16 * 256, 5), once(16 * 256), twice(16 * 256);
    for (auto [from, to] : {std::pair(&w, &once), std::pair(&once, &twice)}) {
      const WeightBytes bytes = weight_bytes(format, Layout::rows, 16, 256);
      std::vector<std::byte> codes(bytes.codes), scales(bytes.scales);
      ASSERT_TRUE(quantise(format, *from, 16, 256, {codes, scales, {}}));
      for (int64_t o = 0; o < 16; ++o)
        dequantise_row({format, Layout::rows, 16, 256, codes, scales, {}}, o, std::span(*to).subspan(o * 256, 256));
    }
    EXPECT_EQ(once, twice) << name(format);
  }
}

TEST(NearestCode, rounds_half_to_even_and_clamps) {
  for (const auto& [x, code] : std::vector<std::pair<float, float>>{{0.5f, 0},
                                                                    {1.5f, 2},
                                                                    {-0.5f, 0},
                                                                    {-2.5f, -2},
                                                                    {6.5f, 6},
                                                                    {7.5f, 7},
                                                                    {1e30f, 7},
                                                                    {-8.4f, -8},
                                                                    {-INFINITY, -8}})
    EXPECT_EQ(nearest_code(x, kFourBits), code) << x;
}

}  // namespace
}  // namespace onw
