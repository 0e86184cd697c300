// Many rows: two blocks of one group are expanded into L1 and run over the rows twelve at a time.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

constexpr int64_t kChunk = 96;        // rows whose float sums are held at once
constexpr int64_t kAhead = 2;         // groups that prefetching runs ahead
constexpr int64_t kTile = 12;         // rows of a tile: 24 sums, two weights and one activation in 32 registers
constexpr int64_t kPanel = 128 * 16;  // bytes of one block and group, expanded

// One group of two blocks, ready for all rows.
struct Panel {
  const uint8_t* codes[2];
  int32_t quads;
  __m512 scale[2];
  __m512 minimum[2];
  alignas(64) int32_t start[kChunk];  // of each row's sums
};

ONW_ALWAYS_INLINE void start_sums(const Call& c, const Group& g, int64_t row0, int64_t rows, int32_t offset,
                                  int32_t* start) {
  const __m512i factor = _mm512_set1_epi32(-offset);
  for (int64_t r = 0; r < rows; r += 16) {
    const auto mask = static_cast<__mmask16>(rows - r >= 16 ? 0xffff : (1 << (rows - r)) - 1);
    __m512i sum = _mm512_setzero_si512();
    for (int32_t i = 0; i < c.depth >> 5; ++i)
      sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, g.x_sums + i * c.row_stride + row0 + r));
    _mm512_store_si512(start + r, _mm512_mullo_epi32(sum, factor));
  }
}

template <Codes kCodes>
ONW_ALWAYS_INLINE void expand(const Call& c, const uint8_t* from, __m512i table, uint8_t* to) {
  if constexpr (kCodes == Codes::twos) {
    for (int32_t l = 0; l < c.depth / 16; ++l) {
      __m512i quad[4];
      split_twos(_mm512_loadu_si512(from + l * 64), quad);
      ONW_UNROLL for (int q = 0; q < 4; ++q) _mm512_store_si512(to + l * 256 + q * 64, quad[q]);
    }
    return;
  }
  for (int32_t l = 0; l < c.depth / 8; ++l) {
    __m512i low, high;
    split<kCodes>(_mm512_loadu_si512(from + l * 64), table, low, high);
    _mm512_store_si512(to + l * 128, low);
    _mm512_store_si512(to + l * 128 + 64, high);
  }
}

// What to prefetch while a group is multiplied: lines of a later group of both blocks, some with every tile of rows. In
// one go the requests would wait for each other.
struct Ahead {
  const char* line;
  int64_t second;  // bytes from a line to that of the other block
  int64_t left;
  int64_t per_tile;
};

ONW_ALWAYS_INLINE void prefetch(Ahead& a) {
  const int64_t lines = least(a.per_tile, a.left);
  for (int64_t i = 0; i < lines; ++i, a.line += 64) {
    _mm_prefetch(a.line, _MM_HINT_T0);
    _mm_prefetch(a.line + a.second, _MM_HINT_T0);
  }
  a.left -= lines;
}

// `count` tiles of kRows rows from `row` on, which lie 2^kShift bytes apart; acc [count * kRows][32]. Formats with a
// minimum have groups of 32: the sum of codes is one number (that of 2-bit codes is made before, group_in_chunk).
template <int kRows, int kShift, bool kMinima>
void tiles(const Group& g, const Panel& p, int64_t row, int64_t count, const int32_t* start, float* acc, Ahead& ahead) {
  constexpr int64_t kStride = int64_t{1} << kShift;
  const int64_t second = p.codes[1] - p.codes[0];
  for (int64_t t = 0; t < count; ++t, row += kRows, start += kRows) {
    prefetch(ahead);
    __m512i sum[kRows][2];
    const int8_t* x = g.x + row * kStride;
    const uint8_t* w = p.codes[0];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_set1_epi32(start[r]);
    for (int32_t q = 0; q < p.quads; q += 2) {
      ONW_UNROLL for (int i = 0; i < 2; ++i) {
        const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + second);
        // The next rows.
        _mm_prefetch(reinterpret_cast<const char*>(x) + kRows * kStride + 60 * q + 64 * i, _MM_HINT_T0);
        ONW_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m512i v = quad_of(x + r * kStride);
          sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, v);
          sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, v);
        }
        w += 64;
        x += 4;
      }
    }
    ONW_UNROLL for (int r = 0; r < kRows; ++r, acc += 32) {
      const __m512 x_scale = _mm512_set1_ps(g.x_scales[row + r]);
      ONW_UNROLL for (int b = 0; b < 2; ++b) {
        __m512 y = add_sums(sum[r][b], p.scale[b], x_scale, _mm512_load_ps(acc + b * 16));
        if constexpr (kMinima) y = add_sums(_mm512_set1_epi32(g.x_sums[row + r]), p.minimum[b], x_scale, y);
        _mm512_store_ps(acc + b * 16, y);
      }
    }
  }
}

using Tiles = void (*)(const Group&, const Panel&, int64_t, int64_t, const int32_t*, float*, Ahead&);
template <int kShift, bool kMinima>
constexpr Tiles kTilesOf[kTile + 1] = {nullptr,
                                       tiles<1, kShift, kMinima>,
                                       tiles<2, kShift, kMinima>,
                                       tiles<3, kShift, kMinima>,
                                       tiles<4, kShift, kMinima>,
                                       tiles<5, kShift, kMinima>,
                                       tiles<6, kShift, kMinima>,
                                       tiles<7, kShift, kMinima>,
                                       tiles<8, kShift, kMinima>,
                                       tiles<9, kShift, kMinima>,
                                       tiles<10, kShift, kMinima>,
                                       tiles<11, kShift, kMinima>,
                                       tiles<12, kShift, kMinima>};
// By the activation's group, without and with minima.
constexpr const Tiles* kTiles[3][2] = {{kTilesOf<5, false>, kTilesOf<5, true>},
                                       {kTilesOf<6, false>, kTilesOf<6, true>},
                                       {kTilesOf<7, false>, kTilesOf<7, true>}};

// A group as rows from `row0` on see it, with their sums over all of it.
ONW_ALWAYS_INLINE Group group_in_chunk(const Call& c, Group g, int64_t row0, int64_t rows, int32_t* sums) {
  start_sums(c, g, row0, rows, -1, sums);
  g.x += row0 << c.x_shift;
  g.x_scales += row0;
  g.x_sums = sums;
  return g;
}

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for one chunk of rows.
template <Codes kCodes>
ONW_ALWAYS_INLINE void two_blocks(const Call& c, const int64_t* block, int64_t row0, int64_t rows) {
  alignas(64) uint8_t expanded[2][kPanel];
  alignas(64) float acc[kChunk * 32];
  alignas(64) int32_t sums[kChunk];  // of 2-bit formats
  const int64_t row = kCodes == Codes::twos ? 0 : row0;
  const int64_t block_bytes = c.inputs * kInputBytes<kCodes>;
  const int64_t group_bytes = c.depth * kInputBytes<kCodes>;
  const __m512i table = level_table(c, kCodes == Codes::levels ? 128 : 0);
  const int32_t offset = kCodes == Codes::levels ? 128 : c.offset;
  const Tiles* tiles_of = kTiles[c.x_shift - 5][c.minima != nullptr];
  const int64_t count = (rows + kTile - 1) / kTile;  // tiles of nearly equal size: `larger` of them one row larger
  const int64_t size = rows / count, larger = rows % count, others = count - larger;
  const int64_t ahead_lines = (group_bytes / 64 + count - 1) / count;
  for (int64_t i = 0; i < rows * 2; ++i) _mm512_store_ps(acc + i * 16, _mm512_setzero_ps());

  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    Group group = group_at(c, g);
    Panel panel;
    panel.quads = c.depth / 4;
    start_sums(c, group, row0, rows, offset, panel.start);
    if constexpr (kCodes == Codes::twos) group = group_in_chunk(c, group, row0, rows, sums);
    for (int b = 0; b < 2; ++b) {
      const uint8_t* from = c.codes + block[b] * block_bytes + g * group_bytes;
      panel.codes[b] = from;
      if constexpr (kCodes != Codes::bytes) {
        expand<kCodes>(c, from, table, expanded[b]);
        panel.codes[b] = expanded[b];
      }
      panel.scale[b] = scales_of(c, group, block[b]);
      panel.minimum[b] = c.minima == nullptr ? _mm512_setzero_ps() : minima_of(c, group, block[b]);
    }
    Ahead ahead{reinterpret_cast<const char*>(c.codes) + block[0] * block_bytes + (g + kAhead) * group_bytes,
                (block[1] - block[0]) * block_bytes, group_bytes / 64, ahead_lines};
    tiles_of[size](group, panel, row, others, panel.start, acc, ahead);
    if (larger > 0) {
      const int64_t done = others * size;
      tiles_of[size + 1](group, panel, row + done, larger, panel.start + done, acc + done * 32, ahead);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int b = 0; b < 1 + (block[1] != block[0]); ++b)
      store_block(c, row0 + r, block[b], _mm512_load_ps(acc + r * 32 + b * 16));
}

template <Codes kCodes>
ONW_ALWAYS_INLINE void many(const Call& c) {
  for (int64_t r0 = 0; r0 < c.rows; r0 += kChunk) {
    const int64_t r1 = least(c.rows, r0 + kChunk);
    for (int64_t b = c.first_block; b < c.last_block; b += 2) {
      const int64_t pair[2] = {b, least(b + 1, c.last_block - 1)};
      two_blocks<kCodes>(c, pair, r0, r1 - r0);
    }
  }
}

}  // namespace

void nibbles_many_avx512vnni(const Call& c) { many<Codes::nibbles>(c); }
void levels_many_avx512vnni(const Call& c) { many<Codes::levels>(c); }
void bytes_many_avx512vnni(const Call& c) { many<Codes::bytes>(c); }
void twos_many_avx512vnni(const Call& c) { many<Codes::twos>(c); }

}  // namespace onw::matmul_kernels
