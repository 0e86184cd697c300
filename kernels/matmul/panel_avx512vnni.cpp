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
  for (int32_t l = 0; l < c.depth / 8; ++l) {
    __m512i low, high;
    split<kCodes>(_mm512_loadu_si512(from + l * 64), table, low, high);
    _mm512_store_si512(to + l * 128, low);
    _mm512_store_si512(to + l * 128 + 64, high);
  }
}

// kRows rows from `row` on, which lie 2^kShift bytes apart; acc [kRows][32].
template <int kRows, int kShift>
void tile(const Group& g, const Panel& p, int64_t row, const int32_t* start, float* acc) {
  constexpr int64_t kStride = int64_t{1} << kShift;
  __m512i sum[kRows][2];
  const int8_t* x = g.x + row * kStride;
  const uint8_t* w = p.codes[0];
  const int64_t second = p.codes[1] - p.codes[0];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_set1_epi32(start[r]);
  for (int32_t q = 0; q < p.quads; q += 2) {
    ONW_UNROLL for (int i = 0; i < 2; ++i) {
      const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + second);
      _mm_prefetch(reinterpret_cast<const char*>(x) + kRows * kStride + 60 * q + 64 * i, _MM_HINT_T0);  // the next rows
      ONW_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m512i v = quad_of(x + r * kStride);
        sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, v);
        sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, v);
      }
      w += 64;
      x += 4;
    }
  }
  ONW_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = _mm512_set1_ps(g.x_scales[row + r]);
    float* a = acc + r * 32;
    _mm512_store_ps(a, add_sums(sum[r][0], p.scale[0], x_scale, _mm512_load_ps(a)));
    _mm512_store_ps(a + 16, add_sums(sum[r][1], p.scale[1], x_scale, _mm512_load_ps(a + 16)));
  }
}

using Tile = void (*)(const Group&, const Panel&, int64_t, const int32_t*, float*);
template <int kShift>
constexpr Tile kTilesOf[kTile + 1] = {nullptr,         tile<1, kShift>, tile<2, kShift>,  tile<3, kShift>,
                                      tile<4, kShift>, tile<5, kShift>, tile<6, kShift>,  tile<7, kShift>,
                                      tile<8, kShift>, tile<9, kShift>, tile<10, kShift>, tile<11, kShift>,
                                      tile<12, kShift>};
constexpr const Tile* kTiles[3] = {kTilesOf<5>, kTilesOf<6>, kTilesOf<7>};

ONW_ALWAYS_INLINE void add_minima(const Call& c, const Group& g, const int64_t* block, int64_t row0, int64_t rows,
                                  float* acc) {
  const __m512 m0 = minima_of(c, g, block[0]), m1 = minima_of(c, g, block[1]);
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 x_scale = _mm512_set1_ps(g.x_scales[row0 + r]);
    const __m512i x_sum = _mm512_set1_epi32(code_sum(c, g, row0 + r));
    _mm512_store_ps(acc + r * 32, add_sums(x_sum, m0, x_scale, _mm512_load_ps(acc + r * 32)));
    _mm512_store_ps(acc + r * 32 + 16, add_sums(x_sum, m1, x_scale, _mm512_load_ps(acc + r * 32 + 16)));
  }
}

// Share t of `tiles` of one group of two blocks, towards L1. Spread over the tiles: in one go the requests would wait
// for each other.
ONW_ALWAYS_INLINE void prefetch(const uint8_t* codes, int64_t block_bytes, int64_t bytes, int64_t t, int64_t tiles) {
  for (int64_t i = bytes * t / tiles / 64 * 64; i < bytes * (t + 1) / tiles; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes) + i, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(codes) + block_bytes + i, _MM_HINT_T0);
  }
}

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for one chunk of rows.
template <Codes kCodes>
ONW_ALWAYS_INLINE void two_blocks(const Call& c, const int64_t* block, int64_t row0, int64_t rows) {
  alignas(64) uint8_t expanded[2][kPanel];
  alignas(64) float acc[kChunk * 32];
  const int64_t block_bytes = c.inputs * (kCodes == Codes::bytes ? 16 : 8);
  const int64_t group_bytes = c.depth * (kCodes == Codes::bytes ? 16 : 8);
  const __m512i table = level_table(c, kCodes == Codes::levels ? 128 : 0);
  const int32_t offset = kCodes == Codes::levels ? 128 : c.offset;
  const Tile* tiles_of = kTiles[c.x_shift - 5];
  const int64_t tiles = (rows + kTile - 1) / kTile;
  for (int64_t i = 0; i < rows * 2; ++i) _mm512_store_ps(acc + i * 16, _mm512_setzero_ps());

  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    Panel panel;
    panel.quads = c.depth / 4;
    start_sums(c, group, row0, rows, offset, panel.start);
    for (int b = 0; b < 2; ++b) {
      const uint8_t* from = c.codes + block[b] * block_bytes + g * group_bytes;
      panel.codes[b] = from;
      if constexpr (kCodes != Codes::bytes) {
        expand<kCodes>(c, from, table, expanded[b]);
        panel.codes[b] = expanded[b];
      }
      panel.scale[b] = scales_of(c, group, block[b]);
    }
    for (int64_t t = 0, r = 0; t < tiles; ++t) {  // tiles of nearly equal size
      const int64_t next = rows * (t + 1) / tiles;
      prefetch(c.codes + block[0] * block_bytes + (g + kAhead) * group_bytes, block_bytes, group_bytes, t, tiles);
      tiles_of[next - r](group, panel, row0 + r, panel.start + r, acc + r * 32);
      r = next;
    }
    if (c.minima != nullptr) add_minima(c, group, block, row0, rows, acc);
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

}  // namespace onw::matmul_kernels
