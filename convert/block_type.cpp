#include "convert/block_type.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/result.h"

namespace onw {

const int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

namespace {

constexpr std::array kBlocks = {
    BlockInfo{0, "F32", 1, 4, true},          BlockInfo{1, "F16", 1, 2, true},
    BlockInfo{2, "Q4_0", 32, 18, true},       BlockInfo{3, "Q4_1", 32, 20, true},
    BlockInfo{6, "Q5_0", 32, 22, true},       BlockInfo{7, "Q5_1", 32, 24, true},
    BlockInfo{8, "Q8_0", 32, 34, true},       BlockInfo{9, "Q8_1", 32, 40, false},
    BlockInfo{10, "Q2_K", 256, 84, true},     BlockInfo{11, "Q3_K", 256, 110, true},
    BlockInfo{12, "Q4_K", 256, 144, true},    BlockInfo{13, "Q5_K", 256, 176, true},
    BlockInfo{14, "Q6_K", 256, 210, true},    BlockInfo{15, "Q8_K", 256, 292, false},
    BlockInfo{16, "IQ2_XXS", 256, 66, false}, BlockInfo{17, "IQ2_XS", 256, 74, false},
    BlockInfo{18, "IQ3_XXS", 256, 98, false}, BlockInfo{19, "IQ1_S", 256, 50, false},
    BlockInfo{20, "IQ4_NL", 32, 18, true},    BlockInfo{21, "IQ3_S", 256, 110, false},
    BlockInfo{22, "IQ2_S", 256, 82, false},   BlockInfo{23, "IQ4_XS", 256, 136, false},
    BlockInfo{24, "I8", 1, 1, false},         BlockInfo{25, "I16", 1, 2, false},
    BlockInfo{26, "I32", 1, 4, false},        BlockInfo{27, "I64", 1, 8, false},
    BlockInfo{28, "F64", 1, 8, true},         BlockInfo{29, "IQ1_M", 256, 56, false},
    BlockInfo{30, "BF16", 1, 2, true},        BlockInfo{34, "TQ1_0", 256, 54, true},
    BlockInfo{35, "TQ2_0", 256, 66, true},    BlockInfo{39, "MXFP4", 32, 17, true},
    BlockInfo{40, "NVFP4", 64, 36, false},    BlockInfo{41, "Q1_0", 128, 18, true},
    BlockInfo{42, "Q2_0", 64, 18, true},      BlockInfo{142, "PQ2_0", 128, 34, true},
    BlockInfo{143, "PTQ1_0", 128, 28, true},
};

// `bytes` bytes of `digits` base-3 digits each, the first digit of all bytes before the second: a byte is the number of
// its digits over 3^5 as a fraction of 256, so that times 3 a digit goes over the edge.
int8_t* base_3(const uint8_t* packed, int bytes, int digits, int8_t* codes) {
  uint32_t power = 1;
  for (int digit = 0; digit < digits; ++digit, power *= 3)
    for (int i = 0; i < bytes; ++i) *codes++ = static_cast<int8_t>((packed[i] * power & 255) * 3 >> 8);
  return codes;
}

// Four codes a byte, low first, in the order of the bytes.
void twos(const uint8_t* packed, int count, int8_t* codes) {
  for (int i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(packed[i / 4] >> (i % 4 * 2) & 3);
}

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float half_at(const uint8_t* p) { return half_to_float(load<uint16_t>(p)); }

// A block decoder writes the values of the block at `b` to `y`.

void f32(const uint8_t* b, float* y) { *y = load<float>(b); }
void f64(const uint8_t* b, float* y) { *y = static_cast<float>(load<double>(b)); }
void f16(const uint8_t* b, float* y) { *y = half_at(b); }
void bf16(const uint8_t* b, float* y) { *y = bf16_to_float(load<uint16_t>(b)); }

void q4_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>((b[2 + i] & 15) - 8) * d;
    y[i + 16] = static_cast<float>((b[2 + i] >> 4) - 8) * d;
  }
}

void q4_1(const uint8_t* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>(b[4 + i] & 15) * d + m;
    y[i + 16] = static_cast<float>(b[4 + i] >> 4) * d + m;
  }
}

// The 5-bit codes of Q5_0 and Q5_1: four low bits in nibbles, the fifth in a word of 32 bits.
void five_bits(const uint8_t* high, const uint8_t* nibbles, int* codes) {
  const uint32_t fifth = load<uint32_t>(high);
  for (int i = 0; i < 16; ++i) {
    codes[i] = (nibbles[i] & 15) | static_cast<int>((fifth >> i) & 1) << 4;
    codes[i + 16] = (nibbles[i] >> 4) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
  }
}

void q5_0(const uint8_t* b, float* y) {
  int codes[32];
  five_bits(b + 2, b + 6, codes);
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(codes[i] - 16) * d;
}

void q5_1(const uint8_t* b, float* y) {
  int codes[32];
  five_bits(b + 4, b + 8, codes);
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(codes[i]) * d + m;
}

void q8_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
}

void iq4_nl(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kIq4Levels[b[2 + i] & 15]);
    y[i + 16] = d * static_cast<float>(kIq4Levels[b[2 + i] >> 4]);
  }
}

// A scale of 2^(byte - 127), then nibbles: a sign and a magnitude of E2M1.
void mxfp4(const uint8_t* b, float* y) {
  const float scale = std::ldexp(1.0f, b[0] - 127);
  for (int i = 0; i < 16; ++i) {
    y[i] = scale * fp4_value(b[1 + i] & 15);
    y[i + 16] = scale * fp4_value(b[1 + i] >> 4);
  }
}

// 16 scale bytes (scale low, minimum high), 64 bytes of 2-bit codes, d, dmin. 32 bytes of codes hold 128 values: bits
// 2s..2s+1 of byte l are value 32 s + l.
void q2_k(const uint8_t* b, float* y) {
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2, byte = i % 32;
    const int code = (b[16 + 32 * half + byte] >> shift) & 3;
    const uint8_t scale = b[i / 16];
    y[i] = d * static_cast<float>(scale & 15) * static_cast<float>(code) - dmin * static_cast<float>(scale >> 4);
  }
}

// 32 bytes of third bits, 64 of low bits as in Q2_K, 12 of packed 6-bit scales, d.
void q3_k(const uint8_t* b, float* y) {
  const uint8_t* packed = b + 96;
  const float d = half_at(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, byte = i % 32, sub = i / 16;
    const int low = (b[32 + 32 * half + byte] >> (2 * quarter)) & 3;
    const int third = (b[byte] >> (4 * half + quarter)) & 1;
    const int scale_low = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
    const int scale_high = (packed[8 + sub % 4] >> (2 * (sub / 4))) & 3;
    const int scale = (scale_low | scale_high << 4) - 32;
    y[i] = d * static_cast<float>(scale) * static_cast<float>(low - (third == 1 ? 0 : 4));
  }
}

// d, dmin, 12 bytes of packed scales, 128 of codes: 32 bytes hold 64 values, low nibbles first.
void q4_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const SubScale s = k_sub_scale(b + 4, sub);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    for (int i = 0; i < 32; ++i) {
      const int code = (b[16 + 32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15;
      y[32 * sub + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits before the codes: bit `sub` of byte i.
void q5_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const SubScale s = k_sub_scale(b + 4, sub);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    for (int i = 0; i < 32; ++i) {
      const int low = (b[48 + 32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15;
      const int code = low | ((b[16 + i] >> sub) & 1) << 4;
      y[32 * sub + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

// 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, d. Of each half (128 values) 64 bytes of nibbles:
// quarters 0 and 1 are the low nibbles of its bytes 0..31 and 32..63, quarters 2 and 3 the high ones.
void q6_k(const uint8_t* b, float* y) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, byte = i % 32;
    const int low = (b[64 * half + 32 * (quarter % 2) + byte] >> (4 * (quarter / 2))) & 15;
    const int high = (b[128 + 32 * half + byte] >> (2 * quarter)) & 3;
    const auto scale = static_cast<int8_t>(b[192 + i / 16]);
    y[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

void times(float d, const int8_t* codes, int count, float* y) {
  for (int i = 0; i < count; ++i) y[i] = static_cast<float>(codes[i] - 1) * d;
}

void tq1_0(const uint8_t* b, float* y) {
  int8_t codes[256];
  ternary_codes(BlockType::tq1_0, b, codes);
  times(half_at(b + 52), codes, 256, y);
}

void tq2_0(const uint8_t* b, float* y) {
  int8_t codes[256];
  ternary_codes(BlockType::tq2_0, b, codes);
  times(half_at(b + 64), codes, 256, y);
}

void q2_0(const uint8_t* b, float* y) {
  int8_t codes[64];
  ternary_codes(BlockType::q2_0, b, codes);
  times(half_at(b), codes, 64, y);
}

void pq2_0(const uint8_t* b, float* y) {
  int8_t codes[128];
  ternary_codes(BlockType::pq2_0, b, codes);
  times(half_at(b), codes, 128, y);
}

void ptq1_0(const uint8_t* b, float* y) {
  int8_t codes[128];
  ternary_codes(BlockType::ptq1_0, b, codes);
  times(half_at(b + 26), codes, 128, y);
}

// A bit is a sign.
void q1_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < 128; ++i) y[i] = (b[2 + i / 8] >> (i % 8) & 1) != 0 ? d : -d;
}

using Decoder = void (*)(const uint8_t*, float*, size_t);

// `count` blocks in turn, the block decoder inlined: a plain value is one load, not one call.
template <auto decode, int kValues, int kBytes>
void each(const uint8_t* b, float* y, size_t count) {
  for (; count > 0; --count, b += kBytes, y += kValues) decode(b, y);
}

struct DecoderRow {
  BlockType type;
  Decoder decode;
};

constexpr std::array kDecoders = {
    DecoderRow{BlockType::f32, each<f32, 1, 4>},         DecoderRow{BlockType::f16, each<f16, 1, 2>},
    DecoderRow{BlockType::bf16, each<bf16, 1, 2>},       DecoderRow{BlockType::f64, each<f64, 1, 8>},
    DecoderRow{BlockType::q4_0, each<q4_0, 32, 18>},     DecoderRow{BlockType::q4_1, each<q4_1, 32, 20>},
    DecoderRow{BlockType::q5_0, each<q5_0, 32, 22>},     DecoderRow{BlockType::q5_1, each<q5_1, 32, 24>},
    DecoderRow{BlockType::q8_0, each<q8_0, 32, 34>},     DecoderRow{BlockType::q2_k, each<q2_k, 256, 84>},
    DecoderRow{BlockType::q3_k, each<q3_k, 256, 110>},   DecoderRow{BlockType::q4_k, each<q4_k, 256, 144>},
    DecoderRow{BlockType::q5_k, each<q5_k, 256, 176>},   DecoderRow{BlockType::q6_k, each<q6_k, 256, 210>},
    DecoderRow{BlockType::iq4_nl, each<iq4_nl, 32, 18>}, DecoderRow{BlockType::mxfp4, each<mxfp4, 32, 17>},
    DecoderRow{BlockType::tq1_0, each<tq1_0, 256, 54>},  DecoderRow{BlockType::tq2_0, each<tq2_0, 256, 66>},
    DecoderRow{BlockType::q1_0, each<q1_0, 128, 18>},    DecoderRow{BlockType::q2_0, each<q2_0, 64, 18>},
    DecoderRow{BlockType::pq2_0, each<pq2_0, 128, 34>},  DecoderRow{BlockType::ptq1_0, each<ptq1_0, 128, 28>},
};

}  // namespace

void ternary_codes(BlockType type, const uint8_t* b, int8_t* codes) {
  switch (type) {
    case BlockType::tq1_0:  // 32 bytes of five digits, 16 of five, 4 of four, d
      base_3(b + 48, 4, 4, base_3(b + 32, 16, 5, base_3(b, 32, 5, codes)));
      return;
    case BlockType::tq2_0:  // 32 bytes hold 128 values: bits 2s..2s+1 of byte l are value 32 s + l; then d
      for (int i = 0; i < 256; ++i) codes[i] = static_cast<int8_t>(b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
      return;
    case BlockType::ptq1_0:  // 16 bytes of five digits, 8 of five, 2 of four, d
      base_3(b + 24, 2, 4, base_3(b + 16, 8, 5, base_3(b, 16, 5, codes)));
      return;
    case BlockType::q2_0:  // d, then codes
      return twos(b + 2, 64, codes);
    case BlockType::pq2_0:
      return twos(b + 2, 128, codes);
    default:
      CHECK(false && "not a ternary type");
  }
}

float fp4_value(int code) {
  constexpr std::array kMagnitudes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[static_cast<size_t>(code & 7)];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

SubScale k_sub_scale(const uint8_t* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6) << 4};
}

const BlockInfo* block_info(uint32_t number) {
  const auto found = std::ranges::find(kBlocks, number, &BlockInfo::number);
  return found == kBlocks.end() ? nullptr : &*found;
}

void dequantise_blocks(BlockType type, std::span<const std::byte> blocks, float* out) {
  const auto row = std::ranges::find(kDecoders, type, &DecoderRow::type);
  CHECK(row != kDecoders.end());
  row->decode(reinterpret_cast<const uint8_t*>(blocks.data()), out, blocks.size() / block_info(type).bytes);
}

}  // namespace onw
