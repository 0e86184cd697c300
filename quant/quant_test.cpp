#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "quant/codebook.h"
#include "quant/error.h"
#include "quant/quantise.h"
#include "quant/relayout.h"
#include "quant/unpack.h"

namespace onw {
namespace {

struct Matrix {
  WeightFormat format;
  int64_t outputs, inputs;
  std::vector<std::byte> codes, scales, minima;
  Layout layout = Layout::rows;

  Matrix(WeightFormat format, Layout layout, int64_t outputs, int64_t inputs)
      : format(format), outputs(outputs), inputs(inputs), layout(layout) {
    const WeightBytes bytes = weight_bytes(format, layout, outputs, inputs);
    codes.resize(bytes.codes);
    scales.resize(bytes.scales);
    minima.resize(bytes.minima);
  }
  WeightParts parts() { return {codes, scales, minima}; }
  WeightView view() const { return {format, layout, outputs, inputs, codes, scales, minima}; }
};

std::vector<float> random_weights(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> w(count);
  for (float& x : w) x = normal(random);
  return w;
}

Matrix quantised(WeightFormat format, const std::vector<float>& w, int64_t outputs, int64_t inputs) {
  Matrix m(format, Layout::rows, outputs, inputs);
  const auto done = quantise(format, w, outputs, inputs, m.parts());
  EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().message);
  return m;
}

std::vector<WeightFormat> supported_formats() {
  std::vector<WeightFormat> formats;
  for (const FormatInfo& f : all_formats()) formats.push_back(f.format);
  return formats;
}

class EveryFormat : public testing::TestWithParam<WeightFormat> {};
INSTANTIATE_TEST_SUITE_P(Quant, EveryFormat, testing::ValuesIn(supported_formats()),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(EveryFormat, loses_what_its_bits_lose) {
  const auto w = random_weights(48 * 256, 1);
  const FormatInfo& f = info(GetParam());
  const double error = weight_error(w, quantised(f.format, w, 48, 256).view()).relative_rms();
  const double expected = f.plain()      ? (f.bits == 32                    ? 1e-30
                                            : f.format == WeightFormat::f16 ? 5e-4
                                                                            : 4e-3)
                          : f.bits == 8  ? 0.012
                          : f.bits == 2  ? 0.37
                          : f.bits == 5  ? 0.045
                          : f.group == 0 ? 0.16
                                         : 0.13;
  EXPECT_LE(error, expected) << f.name;
  EXPECT_GE(error, f.bits == 32 ? 0 : expected / 8) << f.name;
}

TEST_P(EveryFormat, survives_the_way_to_tiles_and_back_in_pieces) {
  for (const int64_t outputs : {16, 37, 5}) {
    const auto w = random_weights(outputs * 128, 2);
    const Matrix rows = quantised(GetParam(), w, outputs, 128);
    Matrix tiles(GetParam(), Layout::tiles, outputs, 128), back(GetParam(), Layout::rows, outputs, 128);
    const int64_t blocks = output_blocks(rows.view());
    for (int64_t b = 0; b < blocks; ++b) {  // each piece alone, into its place
      const auto piece = [b](Matrix& to) {
        const WeightView v = block_view(to.view(), b, b + 1);
        const auto writable = [](std::span<const std::byte> s) {
          return std::span(const_cast<std::byte*>(s.data()), s.size());
        };
        return WeightParts{writable(v.codes), writable(v.scales), writable(v.minima)};
      };
      relayout(rows.view(), b, b + 1, piece(tiles));
      relayout(tiles.view(), b, b + 1, piece(back));
    }
    EXPECT_EQ(back.codes, rows.codes);
    EXPECT_EQ(back.scales, rows.scales);
    EXPECT_EQ(back.minima, rows.minima);

    Matrix at_once(GetParam(), Layout::tiles, outputs, 128);
    relayout(rows.view(), 0, blocks, at_once.parts());
    EXPECT_EQ(at_once.codes, tiles.codes);

    std::vector<float> a(128), b(128);
    for (int64_t o = 0; o < outputs; ++o) {
      dequantise_row(rows.view(), o, a);
      dequantise_row(tiles.view(), o, b);
      EXPECT_EQ(a, b) << "output " << o;
    }
    for (int64_t o = outputs; o < tiles.view().padded_outputs(); ++o) {
      dequantise_row(tiles.view(), o, b);
      EXPECT_THAT(b, testing::Each(0.0f));
    }
  }
}

TEST_P(EveryFormat, gives_zero_for_zero_weights) {
  const std::vector<float> w(16 * 128, 0.0f);
  std::vector<float> row(128);
  dequantise_row(quantised(GetParam(), w, 16, 128).view(), 3, row);
  EXPECT_THAT(row, testing::Each(0.0f));
}

TEST_P(EveryFormat, rows_do_not_depend_on_each_other) {
  const auto w = random_weights(8 * 128, 3);
  const Matrix all = quantised(GetParam(), w, 8, 128);
  const Matrix last = quantised(GetParam(), {w.begin() + 5 * 128, w.end()}, 3, 128);
  std::vector<float> a(128), b(128);
  for (int64_t o = 0; o < 3; ++o) {
    dequantise_row(all.view(), 5 + o, a);
    dequantise_row(last.view(), o, b);
    EXPECT_EQ(a, b);
  }
}

TEST_P(EveryFormat, refuses_a_weight_that_is_not_finite) {
  if (info(GetParam()).plain()) return;  // copied as they are
  auto w = random_weights(16 * 128, 4);
  w[3 * 128 + 5] = NAN;
  Matrix m(GetParam(), Layout::rows, 16, 128);
  const auto done = quantise(GetParam(), w, 16, 128, m.parts());
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, testing::HasSubstr("row 3"));
  w[3 * 128 + 5] = 3e38f;
  EXPECT_FALSE(quantise(GetParam(), w, 16, 128, m.parts()));
}

TEST(Quantise, uses_both_ends_of_the_range_where_that_costs_least) {
  std::vector<float> w(128);
  for (int i = 0; i < 128; ++i) w[i] = static_cast<float>(i % 16 - 8);
  std::vector<int8_t> values(128);
  std::vector<float> scale(1);
  for (const WeightFormat format : {WeightFormat::q4sg128, WeightFormat::q4g128}) {
    unpack_row(quantised(format, w, 1, 128).view(), 0, values, scale, {});
    EXPECT_EQ(scale[0], 1.0f);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(values[i], i % 16 - 8);
  }
}

TEST(Quantise, stores_nibbles_low_first_in_two_s_complement_and_offset_binary_in_tiles) {
  std::vector<int8_t> codes(32, 0);
  codes[0] = -8, codes[1] = 7, codes[4] = -1;
  const std::vector<uint16_t> scale = {float_to_half(0.5f)};
  Matrix m(WeightFormat::q4g32, Layout::rows, 1, 32), t(WeightFormat::q4g32, Layout::tiles, 1, 32);
  ASSERT_TRUE(adopt(WeightFormat::q4g32, codes, scale, {}, 1, 32, m.parts()));
  EXPECT_EQ(m.codes[0], std::byte{0x78});
  EXPECT_EQ(m.codes[2], std::byte{0x0f});
  relayout(m.view(), 0, 1, t.parts());
  EXPECT_EQ(t.codes[0], std::byte{0x70});  // low: code -8 of quad 0; high: code -1 of quad 1
  EXPECT_EQ(t.codes[1], std::byte{0x8f});
  EXPECT_EQ(t.codes[4], std::byte{0x88});  // a padding output holds zeros
}

TEST(Quantise, eight_bit_tiles_hold_code_plus_128_and_formats_with_a_minimum_their_own_code) {
  std::vector<int8_t> codes(32, 0);
  codes[5] = -128;
  const std::vector<uint16_t> half = {0x3c00};
  Matrix a(WeightFormat::q8g32, Layout::rows, 1, 32), ta(WeightFormat::q8g32, Layout::tiles, 1, 32);
  ASSERT_TRUE(adopt(WeightFormat::q8g32, codes, half, {}, 1, 32, a.parts()));
  relayout(a.view(), 0, 1, ta.parts());
  EXPECT_EQ(ta.codes[0], std::byte{128});
  EXPECT_EQ(ta.codes[64 + 1], std::byte{0});
  codes[5] = 31;
  Matrix b(WeightFormat::q5g32m, Layout::rows, 1, 32), tb(WeightFormat::q5g32m, Layout::tiles, 1, 32);
  ASSERT_TRUE(adopt(WeightFormat::q5g32m, codes, half, half, 1, 32, b.parts()));
  relayout(b.view(), 0, 1, tb.parts());
  EXPECT_EQ(tb.codes[0], std::byte{0});
  EXPECT_EQ(tb.codes[64 + 1], std::byte{31});
}

TEST(Quantise, takes_over_codes_scales_and_minima_bit_for_bit) {
  std::mt19937 random(7);
  for (const WeightFormat format : supported_formats()) {
    const FormatInfo& f = info(format);
    if (f.plain()) continue;
    const CodeRange range = code_range(f);
    const int64_t groups = f.group == 0 ? 1 : 256 / f.group;
    std::vector<int8_t> codes(3 * 256), values(256);
    for (int8_t& c : codes) c = static_cast<int8_t>(std::uniform_int_distribution(range.lowest, range.highest)(random));
    std::vector<uint16_t> scales(3 * groups), minima(f.minimum ? 3 * groups : 0);
    for (uint16_t& s : scales) s = static_cast<uint16_t>(random() % 0x7c00);
    for (uint16_t& m : minima) m = static_cast<uint16_t>(0x8000 + random() % 0x7c00);
    Matrix m(format, Layout::rows, 3, 256);
    ASSERT_TRUE(adopt(format, codes, scales, minima, 3, 256, m.parts())) << f.name;
    std::vector<float> s(groups), low(groups);
    unpack_row(m.view(), 2, values, s, low);
    for (int64_t i = 0; i < 256; ++i) {
      const int8_t code = codes[2 * 256 + i];
      EXPECT_EQ(values[i], f.codebook == Codebook::integer ? code : code_values(f).value[code]) << f.name;
    }
    for (int64_t g = 0; g < groups; ++g) {
      EXPECT_EQ(s[g], half_to_float(scales[2 * groups + g]) * code_values(f).step);
      if (f.minimum) EXPECT_EQ(low[g], half_to_float(minima[2 * groups + g]));
    }
  }
}

TEST(Quantise, refuses_codes_and_shapes_that_do_not_fit) {
  Matrix m(WeightFormat::q4g32, Layout::rows, 1, 32);
  const std::vector<uint16_t> scale = {0x3c00};
  EXPECT_FALSE(adopt(WeightFormat::q4g32, std::vector<int8_t>(32, 8), scale, {}, 1, 32, m.parts()));
  EXPECT_FALSE(adopt(WeightFormat::q4g32, std::vector<int8_t>(31, 0), scale, {}, 1, 32, m.parts()));
  EXPECT_FALSE(adopt(WeightFormat::q4g32, std::vector<int8_t>(32, 0), {}, {}, 1, 32, m.parts()));
  EXPECT_FALSE(quantise(WeightFormat::q4g32, std::vector<float>(48), 1, 48, m.parts()));
  EXPECT_FALSE(quantise(WeightFormat::u2g128, std::vector<float>(192), 1, 192, m.parts()));
}

TEST(Quantise, nf4_takes_the_nearest_true_level_and_reports_what_rounding_adds) {
  const auto w = random_weights(16 * 256, 5);
  const Matrix m = quantised(WeightFormat::nf4c, w, 16, 256);
  std::vector<float> row(256);
  dequantise_row_true_nf4(m.view(), 1, row);
  float scale;
  std::vector<int8_t> values(256);
  unpack_row(m.view(), 1, values, std::span(&scale, 1), {});
  for (int64_t i = 0; i < 256; ++i)
    for (const float level : nf4_levels())
      EXPECT_LE(std::fabs(row[i] - w[256 + i]), std::fabs(level * scale * 127 - w[256 + i]) + 1e-6f);
  const double added = nf4_rounding_error(m.view()).relative_rms();
  EXPECT_GT(added, 1e-4);
  EXPECT_LT(added, 0.01);
}

TEST(Codebook, nf4_values_are_127_times_the_levels_rounded) {
  const CodeValues& v = code_values(info(WeightFormat::nf4c));
  EXPECT_THAT(v.value, testing::ElementsAre(-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127));
  EXPECT_EQ(v.step, 1.0f / 127.0f);
}

TEST(WeightError, is_relative_to_the_original) {
  const std::vector<float> w = {3.0f, 4.0f};
  std::vector<float> stored = {3.0f, 3.5f};
  const WeightView view{WeightFormat::f32, Layout::rows, 1, 2, std::as_bytes(std::span(stored)), {}, {}};
  EXPECT_DOUBLE_EQ(weight_error(w, view).relative_rms(), 0.1);
  EXPECT_EQ(WeightError{}.relative_rms(), 0.0);
}

TEST(Quantise, raises_scales_below_the_least_one_and_counts_them) {
  constexpr float kLeast = 0x1p-14f;
  std::vector<float> w = random_weights(3 * 64, 9);
  for (int i = 0; i < 64; ++i) w[64 + i] *= 0x1p-5f;  // a scale of some 2^-16
  std::fill(w.begin() + 128, w.end(), 0.0f);
  Matrix m(WeightFormat::q8c, Layout::rows, 3, 64);
  EXPECT_EQ(quantise(WeightFormat::q8c, w, 3, 64, m.parts(), {.least_scale = kLeast}), 1);
  std::vector<float> row(64);
  dequantise_row(m.view(), 1, row);
  for (int i = 0; i < 64; ++i) EXPECT_LE(std::fabs(row[i] - w[64 + i]), kLeast / 2);
  EXPECT_GT(std::ranges::count_if(row, [](float x) { return x != 0; }), 32);
  dequantise_row(m.view(), 2, row);
  EXPECT_THAT(row, testing::Each(0.0f));
  const Matrix plain = quantised(WeightFormat::q8c, w, 3, 64);
  std::vector<float> ours(64), theirs(64);
  dequantise_row(m.view(), 0, ours);
  dequantise_row(plain.view(), 0, theirs);
  EXPECT_EQ(ours, theirs);
}

}  // namespace
}  // namespace onw
