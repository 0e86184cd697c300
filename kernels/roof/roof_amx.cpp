#include <immintrin.h>

#include "kernels/roof/loops.h"

namespace onw::roof {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace

// Four sums from two tiles of rows and two of weights: each tdpbssd is 16 x 16 x 64 products.
int64_t dot_amx(int64_t iterations) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.column_bytes[i] = 64, config.rows[i] = 16;
  __asm__ volatile("" ::"m"(config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return iterations * 4 * 32768;
}

}  // namespace onw::roof
