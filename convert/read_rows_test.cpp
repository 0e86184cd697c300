#include "convert/read_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/half.h"
#include "quant/error.h"
#include "quant/unpack.h"

namespace onw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Random blocks with finite scales; `halves` are the places of F16 numbers in a block.
std::vector<std::byte> random_blocks(BlockType type, int count, std::vector<int> halves) {
  std::mt19937 random(5);
  const BlockInfo& info = block_info(type);
  std::vector<std::byte> blocks(static_cast<size_t>(info.bytes) * count);
  for (std::byte& b : blocks) b = static_cast<std::byte>(random());
  for (int i = 0; i < count; ++i)
    for (const int at : halves) {
      const uint16_t half = float_to_half(std::uniform_real_distribution<float>(-0.1f, 0.1f)(random));
      std::memcpy(blocks.data() + static_cast<size_t>(i) * info.bytes + at, &half, 2);
    }
  return blocks;
}

struct Case {
  BlockType type;
  std::vector<int> halves;
  double tolerance;  // 0: exact
};

TEST(RowReader, takes_over_the_codes_of_each_block_type_without_loss) {
  const Case cases[] = {{BlockType::q4_0, {0}, 0},       {BlockType::q4_1, {0, 2}, 0},    {BlockType::q5_0, {0}, 0},
                        {BlockType::q5_1, {0, 2}, 0},    {BlockType::q8_0, {0}, 0},       {BlockType::iq4_nl, {0}, 0},
                        {BlockType::q4_k, {0, 2}, 5e-4}, {BlockType::q5_k, {0, 2}, 5e-4}, {BlockType::q1_0, {0}, 0},
                        {BlockType::q2_0, {0}, 0},       {BlockType::tq1_0, {52}, 0},     {BlockType::tq2_0, {64}, 0},
                        {BlockType::pq2_0, {0}, 0},      {BlockType::ptq1_0, {26}, 0}};
  constexpr int64_t kRows = 6, kColumns = 512;
  for (const Case& c : cases) {
    const BlockInfo& info = block_info(c.type);
    const auto blocks = random_blocks(c.type, kRows * kColumns / info.values, c.halves);
    const SourceTensor tensor{"w", std::string(info.name), "f", c.type, {kRows, kColumns}, blocks};
    const WeightDecl decl{.name = "w", .shape = {kRows, kColumns}};
    const RowReader reader(tensor, decl, {});
    const WeightFormat format = *taken_over_format(c.type);
    const WeightBytes bytes = weight_bytes(format, Layout::rows, kRows, kColumns);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    ASSERT_TRUE(reader.take_over(format, 0, kRows, {codes, scales, minima})) << info.name;
    std::vector<float> values(kRows * kColumns);
    ASSERT_TRUE(reader.read(0, kRows, values.data()));
    const WeightView view{format, Layout::rows, kRows, kColumns, codes, scales, minima};
    EXPECT_LE(weight_error(values, view).relative_rms(), c.tolerance) << info.name;
  }
}

TEST(RowReader, undoes_pairs_of_rows_in_each_head) {
  std::vector<float> values = {0, 1, 2, 3, 10, 11, 12, 13};
  const SourceTensor tensor{"w", "F32", "f", BlockType::f32, {8, 1}, std::as_bytes(std::span(values))};
  const WeightDecl decl{.name = "w", .shape = {8, 1}, .head_dim = 4};
  std::vector<float> out(8);
  ASSERT_TRUE(RowReader(tensor, decl, {{}, Fold::rope_unpair, 0}).read(0, 8, out.data()));
  EXPECT_EQ(out, (std::vector<float>{0, 2, 1, 3, 10, 12, 11, 13}));
}

TEST(RowReader, adds_one_to_norms_and_takes_one_half_of_a_fused_tensor) {
  std::vector<float> values = {0, 1, 2, 3};
  const SourceTensor tensor{"w", "F32", "f", BlockType::f32, {4}, std::as_bytes(std::span(values))};
  std::vector<float> out(2);
  ASSERT_TRUE(RowReader(tensor, {.name = "w", .shape = {2}}, {{}, Fold::add_one, 2}).read(0, 2, out.data()));
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
}

TEST(RowReader, parts_the_halves_of_heads_and_takes_minus_e_to_the_x) {
  std::vector<float> values = {0, 1, 20, 21, 2, 3, 22, 23};
  const SourceTensor tensor{"w", "F32", "f", BlockType::f32, {8, 1}, std::as_bytes(std::span(values))};
  const WeightDecl decl{.name = "w", .shape = {4, 1}, .head_dim = 2};
  std::vector<float> out(4);
  ASSERT_TRUE(RowReader(tensor, decl, {{}, Fold::head_half, 0}).read(0, 4, out.data()));
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3}));
  ASSERT_TRUE(RowReader(tensor, decl, {{}, Fold::head_half, 2}).read(0, 4, out.data()));
  EXPECT_EQ(out, (std::vector<float>{20, 21, 22, 23}));
  std::vector<float> rates(2);
  ASSERT_TRUE(RowReader(tensor, {.name = "w", .shape = {2}}, {{}, Fold::minus_exp, 0}).read(0, 2, rates.data()));
  EXPECT_EQ(rates[0], -1);
  EXPECT_FLOAT_EQ(rates[1], -2.7182817f);
}

TEST(RowReader, ends_a_rate_beyond_FP32_at_the_largest_number) {
  std::vector<float> logs = {88, 100, 3e38f, -1e30f};
  const SourceTensor tensor{"w", "F32", "f", BlockType::f32, {4}, std::as_bytes(std::span(logs))};
  std::vector<float> rates(4);
  ASSERT_TRUE(RowReader(tensor, {.name = "w", .shape = {4}}, {{}, Fold::minus_exp, 0}).read(0, 4, rates.data()));
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_GT(rates[0], -kMost);
  EXPECT_EQ(rates[1], -kMost);
  EXPECT_EQ(rates[2], -kMost);
  EXPECT_EQ(rates[3], 0);
  logs[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(RowReader(tensor, {.name = "w", .shape = {4}}, {{}, Fold::minus_exp, 0}).read(0, 4, rates.data()));
}

// A group of 32 codes with one scale, as GGUF files and as Hugging Face folders have it.
TEST(RowReader, tells_scales_of_MXFP4_that_are_no_numbers_from_those_that_are_too_large) {
  const WeightDecl decl{.name = "w", .shape = {1, 32}};
  for (const bool gguf : {true, false}) {
    std::vector<std::byte> block(17, std::byte{0x22});  // every code is 1
    std::vector<std::byte> codes(16, std::byte{0x22}), scale(1);
    const auto says = [&](int exponent, bool take_over, std::byte code = std::byte{0x22}) -> std::string {
      block.assign(17, code), codes.assign(16, code);
      block[0] = scale[0] = static_cast<std::byte>(exponent);
      const SourceTensor tensor = gguf ? SourceTensor{"w", "MXFP4", "f", BlockType::mxfp4, {1, 32}, block}
                                       : SourceTensor{"w", "MXFP4", "f", BlockType::mxfp4, {1, 32}, codes, scale};
      std::vector<float> values(32);
      std::vector<std::byte> to(16), scales(2);
      const RowReader reader(tensor, decl, {});
      const auto done =
          take_over ? reader.take_over(WeightFormat::mxfp4, 0, 1, {to, scales, {}}) : reader.read(0, 1, values.data());
      if (done && !take_over) EXPECT_EQ(values[31], std::ldexp(1.0F, exponent - 127));
      return done ? std::string() : done.error().message;
    };
    EXPECT_EQ(says(0, false), "");
    EXPECT_EQ(says(254, false), "");  // 2^127 is a number
    EXPECT_THAT(says(254, false, std::byte{0x77}), HasSubstr("beyond FP32"));
    EXPECT_THAT(says(255, false), HasSubstr("scale 255 in row 0, which is no number"));
    EXPECT_EQ(says(142, true), "");
    EXPECT_THAT(says(143, true), AllOf(HasSubstr("scale of 2^16"), HasSubstr("--format f32")));
    EXPECT_THAT(says(254, true), HasSubstr("scale of 2^127"));
    EXPECT_THAT(says(255, true), HasSubstr("no number"));
  }
}

TEST(RowReader, reads_a_quantised_vector_along_its_blocks) {
  const auto blocks = random_blocks(BlockType::q8_0, 2, {0});
  const SourceTensor tensor{"w", "Q8_0", "f", BlockType::q8_0, {64}, blocks};
  std::vector<float> all(64), out(3);
  dequantise_blocks(BlockType::q8_0, blocks, all.data());
  ASSERT_TRUE(RowReader(tensor, {.name = "w", .shape = {64}}, {}).read(33, 3, out.data()));
  EXPECT_EQ(out, (std::vector<float>{all[33], all[34], all[35]}));
}

TEST(RowReader, multiplies_rows_by_powers_of_two_in_values_and_in_codes_that_are_taken_over) {
  constexpr int64_t kRows = 4, kColumns = 64;
  const std::vector<int8_t> exponents = {0, 3, -4, 1};
  for (const auto& [type, halves] : {std::pair{BlockType::q8_0, std::vector<int>{0}}, {BlockType::q4_1, {0, 2}}}) {
    const auto blocks = random_blocks(type, kRows * kColumns / 32, halves);
    const SourceTensor tensor{"w", "", "f", type, {kRows, kColumns}, blocks};
    const WeightDecl decl{.name = "w", .shape = {kRows, kColumns}};
    std::vector<float> plain(kRows * kColumns), scaled(kRows * kColumns), taken(kColumns);
    ASSERT_TRUE(RowReader(tensor, decl, {}).read(0, kRows, plain.data()));
    const RowReader reader(tensor, decl, {}, exponents);
    ASSERT_TRUE(reader.read(1, 3, scaled.data() + kColumns));
    const WeightFormat format = *taken_over_format(type);
    const WeightBytes bytes = weight_bytes(format, Layout::rows, kRows, kColumns);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    ASSERT_TRUE(reader.take_over(format, 0, kRows, {codes, scales, minima}));
    const WeightView view{format, Layout::rows, kRows, kColumns, codes, scales, minima};
    for (int64_t r = 1; r < kRows; ++r) {
      dequantise_row(view, r, taken);
      for (int64_t i = 0; i < kColumns; ++i) {
        const float expected = std::ldexp(plain[r * kColumns + i], exponents[r]);
        EXPECT_EQ(scaled[r * kColumns + i], expected);
        EXPECT_EQ(taken[i], expected);
      }
    }
  }
}

TEST(RowReader, refuses_a_scale_that_a_power_of_two_takes_beyond_F16) {
  auto blocks = random_blocks(BlockType::q8_0, 1, {0});
  const uint16_t near_the_end = float_to_half(60000);
  std::memcpy(blocks.data(), &near_the_end, 2);
  const SourceTensor tensor{"w", "Q8_0", "f", BlockType::q8_0, {1, 32}, blocks};
  const WeightDecl decl{.name = "w", .shape = {1, 32}};
  const std::vector<int8_t> exponents = {1};
  std::vector<std::byte> codes(32), scales(2);
  const auto done = RowReader(tensor, decl, {}, exponents).take_over(WeightFormat::q8g32, 0, 1, {codes, scales, {}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::numerics);
}

}  // namespace
}  // namespace onw
