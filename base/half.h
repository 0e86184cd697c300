// FP16 and BF16 as bit patterns, converted exactly (to float) or to nearest even (from float), on any CPU.
#pragma once

#include <bit>
#include <cstdint>

namespace onw {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);  // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude < 0x400u) {  // zero or subnormal: magnitude * 2^-24 is exact in FP32
    const float x = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(x));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

inline uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;            // rounds beyond 65504
  if (magnitude < 0x38800000u) {                                  // below 2^-14: round to a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // ulp(0.5) = 2^-24: the addition rounds to even
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(scaled) - std::bit_cast<uint32_t>(0.5f));
  }
  return sign | static_cast<uint16_t>((magnitude + 0xfffu + ((magnitude >> 13) & 1) - (112u << 23)) >> 13);
}

}  // namespace onw
