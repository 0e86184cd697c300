// Pieces that the 512-bit matmul kernels share: decoding of lines, the epilogue. Only static functions: each file that
// includes this keeps its own copy.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/call.h"

namespace onw::matmul_kernels {

// Two 4-bit lines in one: the quads 2l and 2l + 1 of 16 outputs as unsigned bytes.
template <Codes kCodes>
ONW_ALWAYS_INLINE void split(__m512i line, __m512i table, __m512i& low, __m512i& high) {
  const __m512i mask = _mm512_set1_epi8(15);
  low = _mm512_and_si512(line, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
  if constexpr (kCodes == Codes::levels) {
    low = _mm512_shuffle_epi8(table, low);
    high = _mm512_shuffle_epi8(table, high);
  }
}

// The four quads of a line of 2-bit codes.
ONW_ALWAYS_INLINE void split_twos(__m512i line, __m512i* quad) {
  const __m512i mask = _mm512_set1_epi8(3);
  quad[0] = _mm512_and_si512(line, mask);
  quad[1] = _mm512_and_si512(_mm512_srli_epi16(line, 2), mask);
  quad[2] = _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
  quad[3] = _mm512_and_si512(_mm512_srli_epi16(line, 6), mask);
}

// Bytes that the codes of one input take in a block of 16 outputs.
template <Codes kCodes>
constexpr int kInputBytes = kCodes == Codes::bytes  ? 16
                            : kCodes == Codes::twos ? 4
                                                    : 8;

// Four activations to every lane.
ONW_ALWAYS_INLINE __m512i quad_of(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

// The 16 levels of a codebook by nibble, plus `add`, in each 128-bit lane.
ONW_ALWAYS_INLINE __m512i level_table(const Call& c, int add) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(c.values));
  return _mm512_broadcast_i32x4(_mm_add_epi8(values, _mm_set1_epi8(static_cast<char>(add))));
}

// Scales (already times step) or minima of one block and group.
ONW_ALWAYS_INLINE __m512 halves(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
ONW_ALWAYS_INLINE __m512 scales_of(const Call& c, const Group& g, int64_t block) {
  return _mm512_mul_ps(halves(c.scales + (block * c.weight_groups + g.scale) * 16), _mm512_set1_ps(c.step));
}
ONW_ALWAYS_INLINE __m512 minima_of(const Call& c, const Group& g, int64_t block) {
  return halves(c.minima + (block * c.weight_groups + g.scale) * 16);
}

ONW_ALWAYS_INLINE __m512 add_sums(__m512i sums, __m512 scale, __m512 x_scale, __m512 acc) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scale, x_scale), acc);
}

// One row of one block to memory, with bias and residual; the last block may be narrow.
ONW_ALWAYS_INLINE void store_block(const Call& c, int64_t row, int64_t block, __m512 acc) {
  const int64_t o = block * 16;
  const auto mask = static_cast<__mmask16>(c.outputs - o >= 16 ? 0xffff : (1 << (c.outputs - o)) - 1);
  if (c.bias != nullptr) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, c.bias + o));
  if (c.residual != nullptr)
    acc = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c.residual + row * c.residual_stride + o), acc);
  _mm512_mask_storeu_ps(c.y + row * c.y_stride + o, mask, acc);
}

}  // namespace onw::matmul_kernels
