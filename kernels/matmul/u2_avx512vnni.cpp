// One to eight rows of 2-bit codes: from memory to the dot product without a stop in between, as
// direct_avx512vnni.cpp does for wider ones.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

// With four chains each quad keeps its place in the byte, as 1, 4, 16 and 64 times the code (at most 192, which the
// unsigned side of vpdpbusd holds): no shifts, and no sum waits for another. One sum stays within 192 * 127 * 32.
template <int kChains>
ONW_ALWAYS_INLINE void decode_twos(__m512i line, __m512i* quad) {
  if constexpr (kChains == 1) return split_twos(line, quad);
  quad[0] = _mm512_and_si512(line, _mm512_set1_epi8(3));
  quad[1] = _mm512_and_si512(line, _mm512_set1_epi8(12));
  quad[2] = _mm512_and_si512(line, _mm512_set1_epi8(48));
  quad[3] = _mm512_and_si512(line, _mm512_set1_epi8(static_cast<char>(192)));
}

template <int kChains>
ONW_ALWAYS_INLINE __m512i total(const __m512i* sum) {
  if constexpr (kChains == 1) return sum[0];
  const __m512i low = _mm512_add_epi32(sum[0], _mm512_srai_epi32(sum[1], 2));
  return _mm512_add_epi32(low, _mm512_add_epi32(_mm512_srai_epi32(sum[2], 4), _mm512_srai_epi32(sum[3], 6)));
}

// kRows rows by kBlocks blocks from block `first`.
template <int kRows, int kBlocks>
ONW_ALWAYS_INLINE void rows_by_blocks(const Call& c, int64_t first) {
  constexpr int kChains = kRows <= 2 ? 4 : 1;
  const int64_t block_bytes = c.inputs * 4;
  const uint8_t* line = c.codes + first * block_bytes;
  __m512 acc[kRows][kBlocks];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b] =
      _mm512_setzero_ps();
  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    __m512i sum[kRows][kBlocks][kChains];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b)
        ONW_UNROLL for (int i = 0; i < kChains; ++i) sum[r][b][i] = _mm512_setzero_si512();
    const int8_t* x = group.x;
    for (int32_t k = 0; k < c.depth; k += 16, line += 64, x += 16) {
      __m512i w[kBlocks][4];
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        const uint8_t* p = line + b * block_bytes;
        _mm_prefetch(reinterpret_cast<const char*>(p) + 2048, _MM_HINT_T0);
        decode_twos<kChains>(_mm512_loadu_si512(p), w[b]);
      }
      ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int q = 0; q < 4; ++q) {
        const __m512i v = quad_of(x + (static_cast<int64_t>(r) << c.x_shift) + q * 4);
        ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
          __m512i& s = sum[r][b][q % kChains];
          s = _mm512_dpbusd_epi32(s, w[b][q], v);
        }
      }
    }
    __m512 scale[kBlocks], minimum[kBlocks];
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      scale[b] = scales_of(c, group, first + b);
      minimum[b] = minima_of(c, group, first + b);
    }
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512 x_scale = _mm512_set1_ps(group.x_scales[r]);
      const __m512i x_sum = _mm512_set1_epi32(code_sum(c, group, r));
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        acc[r][b] = add_sums(total<kChains>(sum[r][b]), scale[b], x_scale, acc[r][b]);
        acc[r][b] = add_sums(x_sum, minimum[b], x_scale, acc[r][b]);
      }
    }
  }
  for (int r = 0; r < least(kRows, c.rows); ++r)
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) store_block(c, r, first + b, acc[r][b]);
}

template <int kRows>
void rows(const Call& c) {
  int64_t b = c.first_block;
  for (; b + 2 <= c.last_block; b += 2) rows_by_blocks<kRows, 2>(c, b);
  if (b < c.last_block) rows_by_blocks<kRows, 1>(c, b);
}

}  // namespace

void twos_row_avx512vnni(const Call& c) { rows<1>(c); }

// 5 and 7 rows take the padding row along.
void twos_few_avx512vnni(const Call& c) {
  if (c.rows <= 2) return rows<2>(c);
  if (c.rows <= 3) return rows<3>(c);
  if (c.rows <= 4) return rows<4>(c);
  if (c.rows <= 6) return rows<6>(c);
  rows<8>(c);
}

}  // namespace onw::matmul_kernels
