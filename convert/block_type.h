// How a published file stores values: plain numbers, or the blocks of GGUF. Layouts: ggml's block structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace onw {

// The numbers are those in GGUF files.
enum class BlockType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  f64 = 28,
  bf16 = 30,
  mxfp4 = 39,
};

struct BlockInfo {
  uint32_t number;
  std::string_view name;
  int values;     // in one block
  int bytes;      // of one block
  bool readable;  // dequantise knows it; of the others only the size is known
};

// Null for a number that no known version of the format has.
const BlockInfo* block_info(uint32_t number);
inline const BlockInfo& block_info(BlockType type) { return *block_info(static_cast<uint32_t>(type)); }

// The values of whole blocks as FP32; `out` has room for blocks.size() / bytes * values. Only for readable types.
void dequantise_blocks(BlockType type, std::span<const std::byte> blocks, float* out);

// IQ4_NL's 16 levels.
extern const int8_t kIq4Levels[16];

// The value of an E2M1 code, 0..15.
float fp4_value(int code);

// The 6-bit scale and minimum of sub-block `i` (0..7) of a Q4_K or Q5_K block, from its 12 packed bytes.
struct SubScale {
  int scale;
  int minimum;
};
SubScale k_sub_scale(const uint8_t* packed, int i);

}  // namespace onw
