// Many rows: two blocks of one group are expanded into L1 and run over the rows twelve at a time.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

constexpr int64_t kChunk = 96;        // rows whose float sums are held at once
constexpr int64_t kTile = 12;         // rows of a tile: 24 sums, two weights and one activation in 32 registers
constexpr int64_t kPanel = 128 * 16;  // bytes of one block and group, expanded

// One group of two blocks, ready for all rows.
struct Panel {
  const uint8_t* codes[2];
  int32_t quads;
  __m512 scale[2];
};

template <Codes kCodes>
ONW_ALWAYS_INLINE void expand(const Call& c, const uint8_t* from, __m512i table, uint8_t* to) {
  for (int32_t l = 0; l < c.depth / 8; ++l) {
    __m512i low, high;
    split<kCodes>(_mm512_loadu_si512(from + l * 64), table, low, high);
    _mm_prefetch(reinterpret_cast<const char*>(from) + l * 64 + 4096, _MM_HINT_T0);
    _mm512_store_si512(to + l * 128, low);
    _mm512_store_si512(to + l * 128 + 64, high);
  }
}

// kRows rows from `row` on; acc [kRows][32].
template <int kRows>
void tile(const Call& c, const Group& g, const Panel& p, int64_t row, int32_t offset, float* acc) {
  __m512i sum[kRows][2];
  const int64_t stride = int64_t{1} << c.x_shift;
  const int8_t* x = g.x + row * stride;
  ONW_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] =
      _mm512_set1_epi32(start_sum(c, g, row + r, offset));
  for (int32_t q = 0; q < p.quads; ++q) {
    const __m512i w0 = _mm512_loadu_si512(p.codes[0] + q * 64), w1 = _mm512_loadu_si512(p.codes[1] + q * 64);
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512i v = quad_of(x + r * stride + q * 4);
      sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, v);
      sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, v);
    }
  }
  ONW_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = _mm512_set1_ps(g.x_scales[row + r]);
    float* a = acc + r * 32;
    _mm512_store_ps(a, add_sums(sum[r][0], p.scale[0], x_scale, _mm512_load_ps(a)));
    _mm512_store_ps(a + 16, add_sums(sum[r][1], p.scale[1], x_scale, _mm512_load_ps(a + 16)));
  }
}

using Tile = void (*)(const Call&, const Group&, const Panel&, int64_t, int32_t, float*);
constexpr Tile kTiles[kTile + 1] = {nullptr, tile<1>, tile<2>, tile<3>,  tile<4>,  tile<5>, tile<6>,
                                    tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};

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

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for one chunk of rows.
template <Codes kCodes>
ONW_ALWAYS_INLINE void two_blocks(const Call& c, const int64_t* block, int64_t row0, int64_t rows) {
  alignas(64) uint8_t expanded[2][kPanel];
  alignas(64) float acc[kChunk * 32];
  const int64_t block_bytes = c.inputs * (kCodes == Codes::bytes ? 16 : 8);
  const int64_t group_bytes = c.depth * (kCodes == Codes::bytes ? 16 : 8);
  const __m512i table = level_table(c, kCodes == Codes::levels ? 128 : 0);
  const int32_t offset = kCodes == Codes::levels ? 128 : c.offset;
  const int64_t tiles = (rows + kTile - 1) / kTile;
  for (int64_t i = 0; i < rows * 2; ++i) _mm512_store_ps(acc + i * 16, _mm512_setzero_ps());

  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    Panel panel{{}, c.depth / 4, {}};
    for (int b = 0; b < 2; ++b) {
      const uint8_t* from = c.codes + block[b] * block_bytes + g * group_bytes;
      panel.codes[b] = from;
      if constexpr (kCodes != Codes::bytes) {
        expand<kCodes>(c, from, table, expanded[b]);
        panel.codes[b] = expanded[b];
      } else {
        for (int64_t i = 0; i < group_bytes; i += 64)
          _mm_prefetch(reinterpret_cast<const char*>(from) + group_bytes + i, _MM_HINT_T0);
      }
      panel.scale[b] = scales_of(c, group, block[b]);
    }
    for (int64_t t = 0, r = 0; t < tiles; ++t) {  // tiles of nearly equal size
      const int64_t next = rows * (t + 1) / tiles;
      kTiles[next - r](c, group, panel, row0 + r, offset, acc + r * 32);
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
  const int64_t chunks = (c.rows + kChunk - 1) / kChunk;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t r0 = c.rows * chunk / chunks, r1 = c.rows * (chunk + 1) / chunks;
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
