// Many rows: both products by AMX. A row of a tile of K is a line of the page (16 positions x 4 elements), a row of a
// tile of V is four positions of 16 elements: the layout needs no change. Few rows, other head sizes and F16 go the way
// of AVX-512.
#include "kernels/attention/attention_impl.h"
#include "kernels/simd_avx512.h"

namespace onw {
namespace {

using attention::Page;
using attention::TileRow;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct Amx {
  static constexpr int kRows = 32;
  static constexpr int kPositions = 64;

  static bool takes(const AttentionForm& form, int count) {
    return form.kv == KvFormat::int8 && form.head_dim % 64 == 0 && count > 8;
  }

  // Sums of codes for the tile's rows and the positions lo..hi - 1, as integers in s.scores: 32 rows by 32 positions in
  // four accumulators.
  static void scores(const AttentionScratch& s, const Page& page, const TileRow* tile, int count, int64_t lo,
                     int64_t hi) {
    configure();
    const int64_t padded = page.layout.padded();
    for (int r = 0; r < count; r++) __builtin_memcpy(s.packed + r * padded, s.codes + tile[r].row * padded, padded);
    const bool both = count > 16;
    for (int64_t p = lo / 32 * 32; p < hi; p += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      const std::byte* k = page.at + p * padded;
      for (int64_t i = 0; i < padded; i += 64) {
        _tile_loadd(4, s.packed + i, padded);
        _tile_loadd(6, k + i * 16, 64);
        _tile_loadd(7, k + padded * 16 + i * 16, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        if (!both) continue;
        _tile_loadd(5, s.packed + 16 * padded + i, padded);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      }
      _tile_stored(0, s.scores + p, kPagePositions * 4);
      _tile_stored(1, s.scores + p + 16, kPagePositions * 4);
      if (!both) continue;
      _tile_stored(2, s.scores + 16 * kPagePositions + p, kPagePositions * 4);
      _tile_stored(3, s.scores + 16 * kPagePositions + p + 16, kPagePositions * 4);
    }
    _tile_release();
  }

  // block_o of the tile's rows from the bytes of their weights: 16 rows by 32 elements, low and high bytes apart.
  static void sums(const AttentionScratch& s, const Page& page, const TileRow* tile, int count, int64_t from,
                   int64_t to) {
    configure();
    const int64_t padded = page.layout.padded();
    alignas(64) int32_t low[2][16][16], high[2][16][16];
    for (int first = 0; first < count; first += 16)
      for (int64_t d = 0; d < padded; d += 32) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t p = from; p < to; p += 64) {
          const uint8_t* weights = s.bytes + first * 2 * kPagePositions + p;
          const std::byte* v = page.v() + p * padded + d * 4;
          _tile_loadd(4, weights, 2 * kPagePositions);
          _tile_loadd(5, weights + kPagePositions, 2 * kPagePositions);
          _tile_loadd(6, v, padded * 4);
          _tile_loadd(7, v + 64, padded * 4);
          _tile_dpbusd(0, 4, 6);
          _tile_dpbusd(1, 4, 7);
          _tile_dpbusd(2, 5, 6);
          _tile_dpbusd(3, 5, 7);
        }
        _tile_stored(0, low[0], 64);
        _tile_stored(1, low[1], 64);
        _tile_stored(2, high[0], 64);
        _tile_stored(3, high[1], 64);
        for (int r = 0; r < 16 && first + r < count; r++)
          for (int half = 0; half < 2; half++) {
            const __m512i total = _mm512_add_epi32(_mm512_load_si512(low[half][r]),
                                                   _mm512_slli_epi32(_mm512_load_si512(high[half][r]), 8));
            _mm512_storeu_ps(s.block_o + (first + r) * padded + d + half * 16,
                             _mm512_cvtepi32_ps(total) * _mm512_set1_ps(tile[first + r].factor));
          }
      }
    _tile_release();
  }

 private:
  static void configure() {
    const TileConfig config;
    _tile_loadconfig(&config);
  }
};

}  // namespace

constexpr AttentionOps attention_ops_amx = attention::Kernels<Avx512, Amx>::table();

}  // namespace onw
