// The 256-bit kernels of 2-bit codes, beside those of kernels_ymm.h, whose pieces they use. A line of 64 bytes holds
// four quads of 16 outputs: 2.5 bits a weight with scales and minima, so one row is bound by what is done with a code,
// and the minimum of a group costs one product of its sum.
#pragma once

#include "kernels/matmul/kernels_ymm.h"

namespace onw::matmul_kernels {
namespace {

// With two chains the odd quads keep their place, as four times the code: two shifts less, and the sums of one chain
// need not wait for the other's. The even quads go to chain 0, the odd ones to the last.
template <int kChains>
ONW_ALWAYS_INLINE void decode_twos(const uint8_t* p, __m256i* quad) {
  const __m256i mask = _mm256_set1_epi8(3), upper = _mm256_set1_epi8(12);
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), w = _mm256_srli_epi16(v, 4);
  quad[0] = _mm256_and_si256(v, mask);
  quad[2] = _mm256_and_si256(w, mask);
  if constexpr (kChains == 2) {
    quad[1] = _mm256_and_si256(v, upper);
    quad[3] = _mm256_and_si256(w, upper);
  } else {
    quad[1] = _mm256_and_si256(_mm256_srli_epi16(v, 2), mask);
    quad[3] = _mm256_and_si256(_mm256_srli_epi16(v, 6), mask);
  }
}

// Adds the products of a quad to its chain. With pairs the sums of a group are 16 bits wide: 32 quads of two products
// reach 3 * 127 * 2 * 32 = 24384.
template <Dot kDot>
ONW_ALWAYS_INLINE void add_twos(__m256i& sum, __m256i w, __m256i x) {
  if constexpr (kDot == Dot::vnni) {
    sum = _mm256_dpbusd_avx_epi32(sum, w, x);
  } else {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
  }
}

// The 32-bit sums of a group.
template <Dot kDot, int kChains>
ONW_ALWAYS_INLINE __m256i total(const __m256i* chain) {
  if constexpr (kDot == Dot::pairs) return _mm256_madd_epi16(chain[0], _mm256_set1_epi16(1));
  if constexpr (kChains == 2) return _mm256_add_epi32(chain[0], _mm256_srai_epi32(chain[1], 2));
  return chain[0];
}

// kRows rows by kBlocks blocks from block `first`, codes straight from memory.
template <Dot kDot, int kRows, int kBlocks>
ONW_ALWAYS_INLINE void direct_twos(const Call& c, int64_t first) {
  constexpr int kChains = kDot == Dot::vnni && kRows <= 2 ? 2 : 1;
  const int64_t block_bytes = c.inputs * 4;
  const uint8_t* line = c.codes + first * block_bytes;
  __m256 acc[kRows][kBlocks][2];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b][0] = acc[r][b][1] =
      _mm256_setzero_ps();
  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    __m256i sums[kRows][kBlocks][2][kChains];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b)
        ONW_UNROLL for (int h = 0; h < 2; ++h) ONW_UNROLL for (int i = 0; i < kChains; ++i) sums[r][b][h][i] =
            _mm256_setzero_si256();
    const int8_t* x = group.x;
    for (int32_t k = 0; k < c.depth; k += 16, line += 64, x += 16) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        const uint8_t* p = line + b * block_bytes;
        _mm_prefetch(reinterpret_cast<const char*>(p) + 2048, _MM_HINT_T0);
        ONW_UNROLL for (int h = 0; h < 2; ++h) {
          __m256i w[4];
          decode_twos<kChains>(p + h * 32, w);
          ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int q = 0; q < 4; ++q) add_twos<kDot>(
              sums[r][b][h][q % kChains], w[q], quad_of(x + (static_cast<int64_t>(r) << c.x_shift) + q * 4));
        }
      }
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m256 x_scale = _mm256_set1_ps(group.x_scales[r]);
      const __m256i x_sum = _mm256_set1_epi32(code_sum(c, group, r));
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) ONW_UNROLL for (int h = 0; h < 2; ++h) {
        __m256& a = acc[r][b][h];
        a = add_sums(total<kDot, kChains>(sums[r][b][h]), scales_of(c, group, first + b, h), x_scale, a);
        a = add_sums(x_sum, minima_of(c, group, first + b, h), x_scale, a);
      }
    }
  }
  for (int r = 0; r < least(kRows, c.rows); ++r)
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) ONW_UNROLL for (int h = 0; h < 2; ++h)
        store_half(c, r, first + b, h, acc[r][b][h]);
}

template <Dot kDot>
ONW_ALWAYS_INLINE void one_row_of_twos(const Call& c) {
  int64_t b = c.first_block;
  for (; b + 2 <= c.last_block; b += 2) direct_twos<kDot, 1, 2>(c, b);
  if (b < c.last_block) direct_twos<kDot, 1, 1>(c, b);
}

template <Dot kDot>
ONW_ALWAYS_INLINE void few_rows_of_twos(const Call& c) {
  for (int64_t b = c.first_block; b < c.last_block; ++b) {
    if (c.rows <= 2) {
      direct_twos<kDot, 2, 1>(c, b);
    } else {
      direct_twos<kDot, 4, 1>(c, b);
    }
  }
}

// A group as rows from `row0` on see it, with their sums over all of it.
ONW_ALWAYS_INLINE Group group_in_chunk(const Call& c, int64_t g, int64_t row0, int64_t rows, int32_t* sums) {
  Group group = group_at(c, g);
  start_sums(c, group, row0, rows, -1, sums);
  group.x += row0 << c.x_shift;
  group.x_scales += row0;
  group.x_sums = sums;
  return group;
}

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for one chunk of rows.
template <Dot kDot>
ONW_ALWAYS_INLINE void two_blocks_of_twos(const Call& c, const int64_t* block, int64_t row0, int64_t rows) {
  alignas(64) uint8_t expanded[128 * 16];
  alignas(64) float acc[2][kChunk * 16];
  int32_t sums[kChunk];
  const int32_t start[kChunk] = {};
  const int64_t group_bytes = c.depth * 4;
  for (auto& of_block : acc)
    for (int64_t i = 0; i < rows * 2; ++i) _mm256_store_ps(of_block + i * 8, _mm256_setzero_ps());
  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_in_chunk(c, g, row0, rows, sums);
    for (int b = 0; b < 2; ++b) {
      const uint8_t* from = c.codes + block[b] * c.inputs * 4 + g * group_bytes;
      Panel panel;
      panel.codes = expanded;
      ONW_UNROLL for (int h = 0; h < 2; ++h) {
        panel.scale[h] = scales_of(c, group, block[b], h);
        panel.minimum[h] = minima_of(c, group, block[b], h);
      }
      for (int64_t l = 0; l < group_bytes; l += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead * group_bytes + l, _MM_HINT_T0);
        ONW_UNROLL for (int h = 0; h < 2; ++h) {
          __m256i quad[4];
          decode_twos<1>(from + l + h * 32, quad);
          ONW_UNROLL for (int q = 0; q < 4; ++q)
              _mm256_store_si256(reinterpret_cast<__m256i*>(expanded + l * 4 + q * 64 + h * 32), quad[q]);
        }
      }
      all_tiles<kDot>(c, group, panel, 0, rows, start, acc[b]);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int b = 0; b < 1 + (block[1] != block[0]); ++b)
      ONW_UNROLL for (int h = 0; h < 2; ++h)
          store_half(c, row0 + r, block[b], h, _mm256_load_ps(acc[b] + r * 16 + h * 8));
}

template <Dot kDot>
ONW_ALWAYS_INLINE void many_rows_of_twos(const Call& c) {
  for (int64_t r0 = 0; r0 < c.rows; r0 += kChunk)
    for (int64_t b = c.first_block; b < c.last_block; b += 2) {
      const int64_t pair[2] = {b, least(b + 1, c.last_block - 1)};
      two_blocks_of_twos<kDot>(c, pair, r0, least(c.rows - r0, kChunk));
    }
}

}  // namespace
}  // namespace onw::matmul_kernels
