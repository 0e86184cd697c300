#include "convert/affine_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/half.h"
#include "convert/read_rows.h"
#include "quant/unpack.h"

namespace onw {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Vector {
  int bits = 0;
  int64_t group = 0, rows = 0, inputs = 0;
  BlockType number = BlockType::f32;
  std::vector<std::byte> codes, scales, biases, values;

  SourceTensor tensor() const {
    const BlockType type = bits == 8                   ? BlockType::affine_q8
                           : bits <= 2 && group == 128 ? BlockType::affine_u2
                                                       : BlockType::affine_q4;
    SourceTensor t{"w", "MLX", "f", type, {rows, inputs}, codes, scales};
    t.affine = {bits, group, number, biases};
    return t;
  }
  std::vector<float> expected() const {
    std::vector<float> v(values.size() / 4);
    std::memcpy(v.data(), values.data(), values.size());
    return v;
  }
};

std::vector<Vector> vectors() {
  std::ifstream file(ONW_SOURCE_DIR "/tests/data/affine_rows.txt");
  std::vector<Vector> all;
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    Vector v;
    std::string number, codes, scales, biases, values;
    words >> v.bits >> v.group >> number >> v.rows >> v.inputs >> codes >> scales >> biases >> values;
    v.number = number == "F16" ? BlockType::f16 : number == "BF16" ? BlockType::bf16 : BlockType::f32;
    v.codes = from_hex(codes), v.scales = from_hex(scales), v.biases = from_hex(biases), v.values = from_hex(values);
    all.push_back(std::move(v));
  }
  return all;
}

TEST(AffineTensor, gives_the_values_that_numpy_gives) {
  const auto all = vectors();
  ASSERT_EQ(all.size(), 7u);
  for (const Vector& v : all) {
    const SourceTensor tensor = v.tensor();
    const WeightDecl decl{.name = "w", .shape = {v.rows, v.inputs}};
    std::vector<float> got(static_cast<size_t>(v.rows * v.inputs));
    ASSERT_TRUE(RowReader(tensor, decl, {}).read(0, v.rows, got.data()));
    EXPECT_EQ(got, v.expected()) << v.bits << " bits, groups of " << v.group;
  }
}

// Codes are the file's; a row is given alone, so that its place is right too.
TEST(AffineTensor, is_taken_over_without_loss_where_a_format_holds_it) {
  for (const Vector& v : vectors()) {
    const SourceTensor tensor = v.tensor();
    const auto format = taken_over_format(tensor.type);
    if (v.bits == 8) {
      EXPECT_FALSE(format);
      continue;
    }
    ASSERT_TRUE(format);
    EXPECT_EQ(*format, v.bits <= 2 && v.group == 128 ? WeightFormat::u2g128 : WeightFormat::q4g32m);
    const WeightDecl decl{.name = "w", .shape = {v.rows, v.inputs}};
    const WeightBytes bytes = weight_bytes(*format, Layout::rows, 1, v.inputs);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    ASSERT_TRUE(RowReader(tensor, decl, {}).take_over(*format, 1, 1, {codes, scales, minima}));
    std::vector<float> got(static_cast<size_t>(v.inputs));
    dequantise_row({*format, Layout::rows, 1, v.inputs, codes, scales, minima}, 0, got);
    const auto expected = v.expected();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], expected[static_cast<size_t>(v.inputs) + i]) << v.bits << " bits, groups of " << v.group;
  }
}

TEST(AffineTensor, with_a_scale_that_is_not_finite_is_refused) {
  for (Vector v : vectors()) {
    const uint32_t nan = v.number == BlockType::f32 ? 0x7fc00000u : v.number == BlockType::f16 ? 0x7e00u : 0x7fc0u;
    std::memcpy(v.scales.data(), &nan, v.number == BlockType::f32 ? 4 : 2);
    const SourceTensor tensor = v.tensor();
    const WeightDecl decl{.name = "w", .shape = {v.rows, v.inputs}};
    std::vector<float> got(static_cast<size_t>(v.rows * v.inputs));
    const auto read = RowReader(tensor, decl, {}).read(0, v.rows, got.data());
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::numerics);
    EXPECT_THAT(read.error().message, testing::HasSubstr("row 0"));
  }
}

TEST(AffineTensor, with_a_bias_beyond_F16_is_refused) {
  for (Vector v : vectors()) {
    if (v.number != BlockType::bf16 || v.bits != 2) continue;
    const uint16_t huge = float_to_bf16(1e9f);
    std::memcpy(v.biases.data(), &huge, 2);
    const SourceTensor tensor = v.tensor();
    const WeightDecl decl{.name = "w", .shape = {v.rows, v.inputs}};
    const WeightBytes bytes = weight_bytes(WeightFormat::u2g128, Layout::rows, 1, v.inputs);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    const auto done = RowReader(tensor, decl, {}).take_over(WeightFormat::u2g128, 0, 1, {codes, scales, minima});
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message, testing::HasSubstr("65504"));
  }
}

}  // namespace
}  // namespace onw
