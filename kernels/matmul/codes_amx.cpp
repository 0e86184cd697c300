// Five rows and more by AMX INT8 tiles. An expanded line of weights (4 inputs of 16 outputs) is one row of a weight
// tile, so the layout needs no change; codes become signed bytes, so no offset has to be taken off.
//
// For each pair of blocks and group, the weight tiles stay in registers while the rows stream past, 16 at a time. A
// step takes one block after the other: it stores the sums that the step before left in a tile register (late, so that
// the store does not wait for them), issues the products of the next 16 rows with that block, and does the float part
// of what it stored while they run. Both products first and both stores together is a tenth slower. The float part and
// the tile loads and stores, which take as long as 10 and 18 cycles each and let nothing pass, bound the speed:
// products alone would be three times as fast (Xeon, 2026-11).
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

constexpr int64_t kMaxTiles = 8;    // row tiles of a pass: their activations stay in the L2 cache
constexpr int64_t kShortTiles = 6;  // with groups of 32, whose float sums are in the L1 cache's way (+10 % on the Xeon)
constexpr int64_t kAhead = 8192;    // bytes of a block that are fetched before they are expanded
constexpr int64_t kPanel = 128 * 16;  // bytes of one expanded block and group

struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t column_bytes[16];
  uint8_t rows[16];
};

// Nothing that was written may still wait in a register when tiles are read or configured.
ONW_ALWAYS_INLINE void barrier() { __asm__ volatile("" ::: "memory"); }

// Tiles 0 and 1: sums; 2 and 3: activations; 4 to 7: weights of block 0, then of block 1.
ONW_ALWAYS_INLINE void configure(int rows, int32_t depth) {
  const int bytes = depth < 64 ? depth : 64;  // inputs of one product
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    config.column_bytes[i] = static_cast<uint16_t>(i == 2 || i == 3 ? bytes : 64);
    config.rows[i] = static_cast<uint8_t>(i < 4 ? rows : bytes / 4);
  }
  barrier();
  _tile_loadconfig(&config);
}

// Lines [first, last) of one block and group as signed bytes; a line of 4-bit codes becomes two, one of 2-bit codes
// four. `ahead`: how far behind them the lines lie that are fetched.
template <Codes kCodes>
ONW_ALWAYS_INLINE void expand(const uint8_t* from, __m512i table, int64_t first, int64_t last, int8_t* to,
                              int64_t ahead) {
  for (int64_t l = first; l < last; ++l) {
    const __m512i v = _mm512_loadu_si512(from + l * 64);
    // To L2 only: L1 is full of activations and float sums (+5 % over T0 on the Xeon).
    _mm_prefetch(reinterpret_cast<const char*>(from) + l * 64 + ahead, _MM_HINT_T1);
    if constexpr (kCodes == Codes::bytes) {
      _mm512_store_si512(to + l * 64, _mm512_xor_si512(v, table));
    } else if constexpr (kCodes == Codes::twos) {
      __m512i quad[4];
      split_twos(v, quad);
      ONW_UNROLL for (int q = 0; q < 4; ++q) _mm512_store_si512(to + l * 256 + q * 64, quad[q]);
    } else {
      __m512i low, high;
      split<Codes::levels>(v, table, low, high);
      _mm512_store_si512(to + l * 128, low);
      _mm512_store_si512(to + l * 128 + 64, high);
    }
  }
}

// What the float part of a step needs when its turn comes.
struct Pending {
  const float* x_scales = nullptr;
  float* acc = nullptr;
  __m512 scale[2];
  __m512 minimum[2];
  __m512 code_sums;  // of each row, where there is a minimum
};

// Blocks [first, last) of 16 rows; sums [2][16][16].
template <int kRows, bool kMinima>
ONW_ALWAYS_INLINE void float_part(const Pending& p, const int32_t* sums, int first, int last) {
  alignas(64) float code_sums[16];
  if constexpr (kMinima) _mm512_store_ps(code_sums, p.code_sums);
  ONW_UNROLL for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = _mm512_set1_ps(p.x_scales[r]);
    ONW_UNROLL for (int b = first; b < last; ++b) {
      float* a = p.acc + r * 32 + b * 16;
      __m512 acc = add_sums(_mm512_load_si512(sums + b * 256 + r * 16), p.scale[b], x_scale, _mm512_load_ps(a));
      if constexpr (kMinima)
        acc = _mm512_fmadd_ps(_mm512_set1_ps(code_sums[r]), _mm512_mul_ps(p.minimum[b], x_scale), acc);
      _mm512_store_ps(a, acc);
    }
  }
}

// The products of 16 rows with one block; weights are loaded by the first row tile of a group.
template <int kSteps, int b>
ONW_ALWAYS_INLINE void products(const int8_t* x, int64_t x_stride, const int8_t* weights, bool load_weights) {
  barrier();
  _tile_zero(b);
  if constexpr (b == 0) _tile_loadd(2, x, x_stride);
  if (load_weights) _tile_loadd(4 + 2 * b, weights + b * kPanel, 64);
  _tile_dpbssd(b, 2, 4 + 2 * b);
  if constexpr (kSteps == 2) {
    if constexpr (b == 0) _tile_loadd(3, x + 64, x_stride);
    if (load_weights) _tile_loadd(5 + 2 * b, weights + b * kPanel + 1024, 64);
    _tile_dpbssd(b, 3, 5 + 2 * b);
  }
  barrier();
}

template <int b>
ONW_ALWAYS_INLINE void store_sums(int32_t* sums) {
  barrier();
  _tile_stored(b, sums, 64);
  barrier();
}

// Over a whole group of 2-bit codes.
template <int kRows>
ONW_ALWAYS_INLINE __m512i sums_of_codes(const Call& c, const Group& g, int64_t row) {
  constexpr auto kReal = static_cast<__mmask16>((1 << kRows) - 1);
  __m512i sums = _mm512_maskz_loadu_epi32(kReal, g.x_sums + row);
  for (int32_t i = 1; i < c.depth >> 5; ++i)
    sums = _mm512_add_epi32(sums, _mm512_maskz_loadu_epi32(kReal, g.x_sums + i * c.row_stride + row));
  return sums;
}

// Blocks `block[0]` and `block[1]` (the same one twice where it is the last) for row tiles [first, first + tiles).
template <Codes kCodes, int kRows, int kSteps, bool kMinima>
ONW_ALWAYS_INLINE void two_blocks(const Call& c, const int64_t* block, int64_t first, int64_t tiles) {
  alignas(64) int8_t panel[2 * kPanel];  // free again as soon as its group's weights are in tiles: L1 is short
  alignas(64) int32_t sums[512];
  alignas(64) float acc[kMaxTiles * 16 * 32];
  const int64_t group_bytes = c.depth * kInputBytes<kCodes>, lines = group_bytes / 64;
  const int64_t block_bytes = c.inputs * kInputBytes<kCodes>;
  const uint8_t* from[2] = {c.codes + block[0] * block_bytes, c.codes + block[1] * block_bytes};
  const __m512i table = kCodes == Codes::bytes ? _mm512_set1_epi8(static_cast<char>(c.offset)) : level_table(c, 0);
  const int64_t groups = c.inputs / c.depth;
  for (int64_t i = 0; i < tiles * kRows * 2; ++i) _mm512_store_ps(acc + i * 16, _mm512_setzero_ps());
  ONW_UNROLL for (int b = 0; b < 2; ++b) expand<kCodes>(from[b], table, 0, lines, panel + b * kPanel, kAhead);

  Pending pending;
  for (int64_t g = 0; g < groups; ++g) {
    const Group group = group_at(c, g);
    __m512 scale[2], minimum[2];
    ONW_UNROLL for (int b = 0; b < 2; ++b) {
      scale[b] = scales_of(c, group, block[b]);
      minimum[b] = kMinima ? minima_of(c, group, block[b]) : _mm512_setzero_ps();
    }
    // Behind the end of a block lies the other one of the pair; the next pair's lie a block further (3 % on the Xeon).
    const int64_t ahead = kAhead + ((g + 1) * group_bytes + kAhead < block_bytes ? 0 : block_bytes);
    int64_t expanded = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t row = (first + t) * 16;
      const int8_t* x = group.x + (row << c.x_shift);
      const int64_t x_stride = int64_t{1} << c.x_shift;
      // With minima there is more to share between the blocks than to gain from an early start.
      store_sums<0>(sums);
      products<kSteps, 0>(x, x_stride, panel, t == 0);
      if (!kMinima && pending.acc != nullptr) float_part<kRows, kMinima>(pending, sums, 0, 1);
      store_sums<1>(sums + 256);
      products<kSteps, 1>(x, x_stride, panel, t == 0);
      if (pending.acc != nullptr) float_part<kRows, kMinima>(pending, sums, kMinima ? 0 : 1, 2);
      if (g + 1 < groups) {
        const int64_t until = lines * (t + 1) / tiles;
        ONW_UNROLL for (int b = 0; b < 2; ++b)
            expand<kCodes>(from[b] + (g + 1) * group_bytes, table, expanded, until, panel + b * kPanel, ahead);
        expanded = until;
      }
      __m512i code_sums;
      if constexpr (kCodes == Codes::twos) {
        code_sums = sums_of_codes<kRows>(c, group, row);
      } else {
        code_sums = _mm512_maskz_loadu_epi32(kMinima ? (1 << kRows) - 1 : 0, group.x_sums + row);
      }
      pending = {group.x_scales + row,
                 acc + t * 512,
                 {scale[0], scale[1]},
                 {minimum[0], minimum[1]},
                 _mm512_cvtepi32_ps(code_sums)};
    }
  }
  store_sums<0>(sums);
  store_sums<1>(sums + 256);
  float_part<kRows, kMinima>(pending, sums, 0, 2);
  for (int64_t r = 0; r < least(tiles * 16, c.rows - first * 16); ++r)
    for (int b = 0; b < 1 + (block[1] != block[0]); ++b)
      store_block(c, first * 16 + r, block[b], _mm512_load_ps(acc + r * 32 + b * 16));
}

template <Codes kCodes, int kRows, int kSteps, bool kMinima>
__attribute__((noinline)) void all_blocks(const Call& c) {
  configure(kRows, c.depth);
  const int64_t tiles = (c.rows + 15) / 16, most = c.depth == 32 ? kShortTiles : kMaxTiles;
  const int64_t passes = (tiles + most - 1) / most, each = (tiles + passes - 1) / passes;
  for (int64_t first = 0; first < tiles; first += each)
    for (int64_t b = c.first_block; b < c.last_block; b += 2) {
      const int64_t pair[2] = {b, least(b + 1, c.last_block - 1)};
      two_blocks<kCodes, kRows, kSteps, kMinima>(c, pair, first, least(each, tiles - first));
    }
  _tile_release();
}

// But for 2-bit codes, formats with a minimum have groups of 32: one step, and the sum of codes is one number.
template <Codes kCodes, int kRows>
ONW_ALWAYS_INLINE void by_depth(const Call& c) {
  if constexpr (kCodes == Codes::twos) {
    if (c.depth == 128) return all_blocks<kCodes, kRows, 2, true>(c);
    return all_blocks<kCodes, kRows, 1, true>(c);
  }
  if (c.minima != nullptr) return all_blocks<kCodes, kRows, 1, true>(c);
  if (c.depth == 128) return all_blocks<kCodes, kRows, 2, false>(c);
  all_blocks<kCodes, kRows, 1, false>(c);
}

template <Codes kCodes>
ONW_ALWAYS_INLINE void by_rows(const Call& c) {
  if (c.rows <= 8) return by_depth<kCodes, 8>(c);
  by_depth<kCodes, 16>(c);
}

}  // namespace

void nibbles_amx(const Call& c) { by_rows<Codes::nibbles>(c); }
void levels_amx(const Call& c) { by_rows<Codes::levels>(c); }
void bytes_amx(const Call& c) { by_rows<Codes::bytes>(c); }
void twos_amx(const Call& c) { by_rows<Codes::twos>(c); }

}  // namespace onw::matmul_kernels
