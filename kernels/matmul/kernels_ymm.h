// The 256-bit matmul kernels, written once for AVX-VNNI (vpdpbusd) and for plain AVX2 (vpmaddubsw). Only static
// functions: each of the two files that include this keeps its own copy. A line of 64 bytes is two registers of 8
// outputs ("halves").
#pragma once

#include <immintrin.h>

#include "kernels/matmul/call.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

// How four products become one INT32.
enum class Dot {
  vnni,   // vpdpbusd: unsigned codes by signed activations, nothing saturates
  pairs,  // vpmaddubsw on codes up to 15: the 16-bit sums of eight quads stay within 15 * 127 * 2 * 8 = 30480
  signs,  // vpmaddubsw on |w| and x with w's sign, at most 128 * 127 * 2 = 32512, widened at once
};

// Codes in registers: unsigned with an offset for vnni and pairs, the signed value for signs.
template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE int32_t offset_of(const Call& c) {
  if (kDot == Dot::signs) return 0;
  return kCodes == Codes::levels ? 128 : c.offset;
}

// What half a line is decoded with: levels by nibble, or what flips a byte to its signed value.
template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE __m256i decode_table(const Call& c) {
  if (kCodes == Codes::bytes) return _mm256_set1_epi8(static_cast<char>(kDot == Dot::signs ? c.offset : 0));
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(c.values));
  const __m128i offset = _mm_set1_epi8(static_cast<char>(kDot == Dot::signs ? 0 : 128));
  return _mm256_broadcastsi128_si256(_mm_xor_si128(values, offset));
}

// The quads of half a line: one of 8-bit codes, two of 4-bit codes.
template <Codes kCodes>
ONW_ALWAYS_INLINE void decode(const uint8_t* p, __m256i table, __m256i* quad) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if constexpr (kCodes == Codes::bytes) {
    quad[0] = _mm256_xor_si256(v, table);
  } else {
    const __m256i mask = _mm256_set1_epi8(15);
    quad[0] = _mm256_and_si256(v, mask);
    quad[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    if constexpr (kCodes == Codes::levels) {
      quad[0] = _mm256_shuffle_epi8(table, quad[0]);
      quad[1] = _mm256_shuffle_epi8(table, quad[1]);
    }
  }
}

ONW_ALWAYS_INLINE __m256i quad_of(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

// Adds the products of one quad to `sum`, or with pairs to the 16-bit `narrow`.
template <Dot kDot>
ONW_ALWAYS_INLINE void add_quad(__m256i& sum, __m256i& narrow, __m256i w, __m256i x) {
  if constexpr (kDot == Dot::vnni) {
    sum = _mm256_dpbusd_avx_epi32(sum, w, x);
  } else if constexpr (kDot == Dot::pairs) {
    narrow = _mm256_add_epi16(narrow, _mm256_maddubs_epi16(w, x));
  } else {
    const __m256i two = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
  }
}

// After 32 inputs, eight quads.
template <Dot kDot>
ONW_ALWAYS_INLINE void widen(__m256i& sum, __m256i& narrow) {
  if constexpr (kDot == Dot::pairs) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
    narrow = _mm256_setzero_si256();
  }
}

// Scales (times step) or minima of half a block.
ONW_ALWAYS_INLINE __m256 halves(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
ONW_ALWAYS_INLINE __m256 scales_of(const Call& c, const Group& g, int64_t block, int half) {
  const uint16_t* at = c.scales + (block * c.weight_groups + g.scale) * 16 + half * 8;
  return _mm256_mul_ps(halves(at), _mm256_set1_ps(c.step));
}
ONW_ALWAYS_INLINE __m256 minima_of(const Call& c, const Group& g, int64_t block, int half) {
  return halves(c.minima + (block * c.weight_groups + g.scale) * 16 + half * 8);
}

ONW_ALWAYS_INLINE __m256 add_sums(__m256i sums, __m256 scale, __m256 x_scale, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scale, x_scale), acc);
}

// Half a block of one row to memory, with bias and residual; the last block may be narrow.
ONW_ALWAYS_INLINE void store_half(const Call& c, int64_t row, int64_t block, int half, __m256 acc) {
  const int64_t o = block * 16 + half * 8;
  if (o >= c.outputs) return;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(least(c.outputs - o, 8))), lanes);
  if (c.bias != nullptr) acc = _mm256_add_ps(acc, _mm256_maskload_ps(c.bias + o, mask));
  if (c.residual != nullptr)
    acc = _mm256_add_ps(_mm256_maskload_ps(c.residual + row * c.residual_stride + o, mask), acc);
  _mm256_maskstore_ps(c.y + row * c.y_stride + o, mask, acc);
}

constexpr int64_t kReadAhead = 4096;  // bytes that prefetching runs ahead

// kRows rows by kBlocks blocks from block `first`, codes straight from memory: for few rows, which are bound by
// reading.
template <Codes kCodes, Dot kDot, int kRows, int kBlocks>
ONW_ALWAYS_INLINE void direct(const Call& c, int64_t first) {
  constexpr int kQuads = kCodes == Codes::bytes ? 1 : 2;  // in a line of 64 bytes
  constexpr int kLines = 8 / kQuads;                      // of 32 inputs
  const __m256i table = decode_table<kCodes, kDot>(c);
  const int32_t offset = offset_of<kCodes, kDot>(c);
  const int64_t block_bytes = c.inputs * 16 / kQuads;
  const uint8_t* line = c.codes + first * block_bytes;
  __m256 acc[kRows][kBlocks][2];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b][0] = acc[r][b][1] =
      _mm256_setzero_ps();

  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    __m256i sum[kRows][kBlocks][2], narrow[kRows][kBlocks][2];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m256i start = _mm256_set1_epi32(start_sum(c, group, r, offset));
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) ONW_UNROLL for (int h = 0; h < 2; ++h) {
        sum[r][b][h] = start;
        narrow[r][b][h] = _mm256_setzero_si256();
      }
    }
    const int8_t* x = group.x;
    // The streams end, and those of the next blocks begin kBlocks - 1 blocks further: there, not in what has been read.
    const int64_t read = (g + 1) * c.depth * 16 / kQuads;
    const int64_t ahead = kReadAhead + (read + kReadAhead > block_bytes ? (kBlocks - 1) * block_bytes : 0);
    for (int32_t k = 0; k < c.depth; k += 32) {
      ONW_UNROLL for (int l = 0; l < kLines; ++l) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        const uint8_t* p = line + b * block_bytes + l * 64;
        _mm_prefetch(reinterpret_cast<const char*>(p) + ahead, _MM_HINT_T0);
        ONW_UNROLL for (int h = 0; h < 2; ++h) {
          __m256i w[2];
          decode<kCodes>(p + h * 32, table, w);
          ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int q = 0; q < kQuads; ++q) {
            const int8_t* quad = x + (static_cast<int64_t>(r) << c.x_shift) + (l * kQuads + q) * 4;
            add_quad<kDot>(sum[r][b][h], narrow[r][b][h], w[q], quad_of(quad));
          }
        }
      }
      ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b)
          ONW_UNROLL for (int h = 0; h < 2; ++h) widen<kDot>(sum[r][b][h], narrow[r][b][h]);
      line += kLines * 64;
      x += 32;
    }
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) ONW_UNROLL for (int h = 0; h < 2; ++h) {
      const __m256 scale = scales_of(c, group, first + b, h);
      if (h == 0) prefetch_scales(c, group, first + kBlocks + b);
      ONW_UNROLL for (int r = 0; r < kRows; ++r) acc[r][b][h] =
          add_sums(sum[r][b][h], scale, _mm256_set1_ps(group.x_scales[r]), acc[r][b][h]);
      if (c.minima == nullptr) continue;
      const __m256 minimum = minima_of(c, group, first + b, h);
      ONW_UNROLL for (int r = 0; r < kRows; ++r) acc[r][b][h] =
          add_sums(_mm256_set1_epi32(code_sum(c, group, r)), minimum, _mm256_set1_ps(group.x_scales[r]), acc[r][b][h]);
    }
  }
  for (int r = 0; r < least(kRows, c.rows); ++r)
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) ONW_UNROLL for (int h = 0; h < 2; ++h)
        store_half(c, r, first + b, h, acc[r][b][h]);
}

template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE void one_row(const Call& c) {
  int64_t b = c.first_block;
  for (; b + 2 <= c.last_block; b += 2) direct<kCodes, kDot, 1, 2>(c, b);
  if (b < c.last_block) direct<kCodes, kDot, 1, 1>(c, b);
}

template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE void few_rows(const Call& c) {
  for (int64_t b = c.first_block; b < c.last_block; ++b) {
    if (c.rows <= 2) {
      direct<kCodes, kDot, 2, 1>(c, b);
    } else {
      direct<kCodes, kDot, 4, 1>(c, b);
    }
  }
}

constexpr int64_t kChunk = 96;  // rows whose float sums are held at once
constexpr int64_t kAhead = 2;   // groups that prefetching runs ahead

// One group of one block, ready for all rows.
struct Panel {
  const uint8_t* codes;  // [quads][64]
  __m256 scale[2];
  __m256 minimum[2];
};

// `count` tiles of kRows rows from `row` on; acc [count * kRows][16]. Formats with a minimum have groups of 32: the sum
// of codes is one number.
template <Dot kDot, bool kMinima, int kRows>
void tiles(const Call& c, const Group& g, const Panel& p, int64_t row, int64_t count, const int32_t* start,
           float* acc) {
  const int64_t stride = int64_t{1} << c.x_shift;
  const int32_t depth = c.depth;
  for (int64_t t = 0; t < count; ++t, row += kRows, start += kRows) {
    const int8_t* x = g.x + row * stride;
    const uint8_t* w = p.codes;
    __m256i sum[kRows][2], narrow[kRows][2];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      sum[r][0] = sum[r][1] = _mm256_set1_epi32(start[r]);
      narrow[r][0] = narrow[r][1] = _mm256_setzero_si256();
    }
    for (int32_t k = 0; k < depth; k += 32) {
      ONW_UNROLL for (int q = 0; q < 8; ++q) {
        const auto* line = reinterpret_cast<const __m256i*>(w + q * 64);
        const __m256i w0 = _mm256_loadu_si256(line), w1 = _mm256_loadu_si256(line + 1);
        ONW_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i v = quad_of(x + r * stride + q * 4);
          add_quad<kDot>(sum[r][0], narrow[r][0], w0, v);
          add_quad<kDot>(sum[r][1], narrow[r][1], w1, v);
        }
      }
      ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int h = 0; h < 2; ++h)
          widen<kDot>(sum[r][h], narrow[r][h]);
      w += 8 * 64;
      x += 32;
    }
    ONW_UNROLL for (int r = 0; r < kRows; ++r, acc += 16) {
      const __m256 x_scale = _mm256_set1_ps(g.x_scales[row + r]);
      ONW_UNROLL for (int h = 0; h < 2; ++h) {
        __m256 y = add_sums(sum[r][h], p.scale[h], x_scale, _mm256_load_ps(acc + h * 8));
        if constexpr (kMinima) y = add_sums(_mm256_set1_epi32(g.x_sums[row + r]), p.minimum[h], x_scale, y);
        _mm256_store_ps(acc + h * 8, y);
      }
    }
  }
}

using Tiles = void (*)(const Call&, const Group&, const Panel&, int64_t, int64_t, const int32_t*, float*);
template <Dot kDot, bool kMinima>
constexpr Tiles kTiles[7] = {nullptr,
                             tiles<kDot, kMinima, 1>,
                             tiles<kDot, kMinima, 2>,
                             tiles<kDot, kMinima, 3>,
                             tiles<kDot, kMinima, 4>,
                             tiles<kDot, kMinima, 5>,
                             tiles<kDot, kMinima, 6>};

// All rows of a chunk, in tiles of nearly equal size. Of sixteen registers vnni's sums leave room for six rows; pairs
// has two sums an output, signs more steps in between.
template <Dot kDot>
ONW_ALWAYS_INLINE void all_tiles(const Call& c, const Group& g, const Panel& p, int64_t row0, int64_t rows,
                                 const int32_t* start, float* acc) {
  constexpr int64_t kRows = kDot == Dot::vnni ? 6 : kDot == Dot::pairs ? 3 : 4;
  const Tiles* tiles_of = c.minima == nullptr ? kTiles<kDot, false> : kTiles<kDot, true>;
  const auto n = static_cast<int32_t>(rows);
  const int32_t count = (n + kRows - 1) / kRows, size = n / count, larger = n % count, done = (count - larger) * size;
  tiles_of[size](c, g, p, row0, count - larger, start, acc);
  if (larger > 0) tiles_of[size + 1](c, g, p, row0 + done, larger, start + done, acc + done * 16);
}

// What each row's sums of a group start from.
ONW_ALWAYS_INLINE void start_sums(const Call& c, const Group& g, int64_t row0, int64_t rows, int32_t offset,
                                  int32_t* start) {
  for (int64_t r = 0; r < rows; ++r) start[r] = 0;
  if (offset == 0) return;
  for (int32_t i = 0; i < c.depth >> 5; ++i)
    for (int64_t r = 0; r < rows; ++r) start[r] -= offset * g.x_sums[i * c.row_stride + row0 + r];
}

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for one chunk of rows: each group is
// expanded once into L1 and run over the rows, which stay there for the second block.
template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE void two_blocks(const Call& c, const int64_t* block, int64_t row0, int64_t rows) {
  constexpr int kQuads = kCodes == Codes::bytes ? 1 : 2;
  constexpr bool kExpand = kCodes != Codes::bytes || kDot == Dot::signs;
  alignas(64) uint8_t expanded[128 * 16];
  alignas(64) float acc[2][kChunk * 16];
  int32_t start[kChunk];
  const __m256i table = decode_table<kCodes, kDot>(c);
  const int32_t offset = offset_of<kCodes, kDot>(c);
  const int64_t group_bytes = c.depth * 16 / kQuads;
  for (auto& of_block : acc)
    for (int64_t i = 0; i < rows * 2; ++i) _mm256_store_ps(of_block + i * 8, _mm256_setzero_ps());
  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    start_sums(c, group, row0, rows, offset, start);
    for (int b = 0; b < 2; ++b) {
      const uint8_t* from = c.codes + block[b] * c.inputs * 16 / kQuads + g * group_bytes;
      Panel panel;
      panel.codes = kExpand ? expanded : from;
      ONW_UNROLL for (int h = 0; h < 2; ++h) {
        panel.scale[h] = scales_of(c, group, block[b], h);
        panel.minimum[h] = c.minima == nullptr ? _mm256_setzero_ps() : minima_of(c, group, block[b], h);
      }
      for (int64_t l = 0; l < group_bytes; l += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead * group_bytes + l, _MM_HINT_T0);
        if constexpr (kExpand) {
          ONW_UNROLL for (int h = 0; h < 2; ++h) {
            __m256i quad[2];
            decode<kCodes>(from + l + h * 32, table, quad);
            ONW_UNROLL for (int q = 0; q < kQuads; ++q)
                _mm256_store_si256(reinterpret_cast<__m256i*>(expanded + (l * kQuads + q * 64) + h * 32), quad[q]);
          }
        }
      }
      all_tiles<kDot>(c, group, panel, row0, rows, start, acc[b]);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int b = 0; b < 1 + (block[1] != block[0]); ++b)
      ONW_UNROLL for (int h = 0; h < 2; ++h)
          store_half(c, row0 + r, block[b], h, _mm256_load_ps(acc[b] + r * 16 + h * 8));
}

template <Codes kCodes, Dot kDot>
ONW_ALWAYS_INLINE void many_rows(const Call& c) {
  for (int64_t r0 = 0; r0 < c.rows; r0 += kChunk)
    for (int64_t b = c.first_block; b < c.last_block; b += 2) {
      const int64_t pair[2] = {b, least(b + 1, c.last_block - 1)};
      two_blocks<kCodes, kDot>(c, pair, r0, least(c.rows - r0, kChunk));
    }
}

}  // namespace
}  // namespace onw::matmul_kernels
