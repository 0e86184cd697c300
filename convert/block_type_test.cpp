#include "convert/block_type.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace onw {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

const BlockInfo* info_named(const std::string& name) {
  for (uint32_t number = 0; number < 200; ++number)
    if (const BlockInfo* info = block_info(number); info != nullptr && info->name == name) return info;
  return nullptr;
}

TEST(BlockType, dequantises_every_readable_type_as_the_python_package_gguf_does) {
  std::ifstream file(ONW_SOURCE_DIR "/tests/data/gguf_blocks.txt");
  std::string line;
  int types = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name, block_hex, value_hex;
    words >> name >> block_hex >> value_hex;
    const BlockInfo* info = info_named(name);
    ASSERT_NE(info, nullptr) << name;
    const auto blocks = from_hex(block_hex), bits = from_hex(value_hex);
    std::vector<float> expected(bits.size() / 4);
    std::memcpy(expected.data(), bits.data(), bits.size());
    ASSERT_EQ(blocks.size() / info->bytes * info->values, expected.size()) << name;
    std::vector<float> actual(expected.size());
    dequantise_blocks(static_cast<BlockType>(info->number), blocks, actual.data());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), bits.size()), 0) << name;
    ++types;
  }
  EXPECT_EQ(types, 20);
}

TEST(BlockType, a_double_becomes_the_nearest_float) {
  const double values[2] = {0.1, -3};
  float out[2];
  dequantise_blocks(BlockType::f64, std::as_bytes(std::span(values)), out);
  EXPECT_EQ(out[0], 0.1f);
  EXPECT_EQ(out[1], -3.0f);
}

TEST(BlockType, unknown_numbers_have_no_info) {
  EXPECT_EQ(block_info(uint32_t{4}), nullptr);
  EXPECT_EQ(block_info(uint32_t{UINT32_MAX}), nullptr);
  EXPECT_EQ(block_info(static_cast<uint32_t>(BlockType::affine_u2)), nullptr);
  EXPECT_FALSE(block_info(uint32_t{16})->readable);
}

}  // namespace
}  // namespace onw
