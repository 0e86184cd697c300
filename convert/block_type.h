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
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  q1_0 = 41,
  q2_0 = 42,    // groups of 64; a file with groups of 128 under this number is read as PQ2_0 (convert/gguf.cpp)
  pq2_0 = 142,  // Prism's numbers
  ptq1_0 = 143,

  // In no GGUF file: codes, scales and biases as three tensors (convert/affine_tensor.h).
  affine_u2 = 0x10000,  // 1 or 2 bits, groups of 128 or a multiple
  affine_q4 = 0x10001,  // up to 4 bits, groups of 32 or a multiple
  affine_q8 = 0x10002,  // 8 bits
};

struct BlockInfo {
  uint32_t number;
  std::string_view name;
  int values;     // in one block
  int bytes;      // of one block
  bool readable;  // dequantise knows it; of the others only the size is known
};

// Null for a number that no known version of the format has, and for what GGUF files do not have.
const BlockInfo* block_info(uint32_t number);
inline const BlockInfo& block_info(BlockType type) { return *block_info(static_cast<uint32_t>(type)); }

// The values of whole blocks as FP32; `out` has room for blocks.size() / bytes * values. Only for readable types.
void dequantise_blocks(BlockType type, std::span<const std::byte> blocks, float* out);

// The codes of one block of TQ1_0, TQ2_0, Q2_0, PQ2_0 or PTQ1_0: a value is (code - 1) * d.
void ternary_codes(BlockType type, const uint8_t* block, int8_t* codes);

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
