// Plain weights (f32, f16, bf16) by FP32 fma, inputs ascending, one sum per output.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/kernels_ymm.h"

namespace onw::matmul_kernels {
namespace {

template <Codes kCodes>
ONW_ALWAYS_INLINE __m256 weights(const uint8_t* p) {
  if constexpr (kCodes == Codes::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if constexpr (kCodes == Codes::f16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// A sum waits four cycles for the one before: eight in flight keep the two units busy.
template <Codes kCodes, int kRows, int kBlocks>
void rows_by_blocks(const Call& c, int64_t row, int64_t first) {
  constexpr int kBytes = kCodes == Codes::f32 ? 64 : 32;
  const uint8_t* w = c.codes + first * c.inputs * kBytes;
  const float* x = c.x_plain + row * c.x_plain_stride;
  __m256 acc[kRows][kBlocks][2];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b][0] = acc[r][b][1] =
      _mm256_setzero_ps();
  for (int64_t k = 0; k < c.inputs; ++k) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* p = w + (b * c.inputs + k) * kBytes;
      _mm_prefetch(reinterpret_cast<const char*>(p) + 1024, _MM_HINT_T0);
      ONW_UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 v = weights<kCodes>(p + h * kBytes / 2);
        ONW_UNROLL for (int r = 0; r < kRows; ++r) acc[r][b][h] =
            _mm256_fmadd_ps(_mm256_set1_ps(x[r * c.x_plain_stride + k]), v, acc[r][b][h]);
      }
    }
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b)
      ONW_UNROLL for (int h = 0; h < 2; ++h) store_half(c, row + r, first + b, h, acc[r][b][h]);
}

template <Codes kCodes>
ONW_ALWAYS_INLINE void plain(const Call& c) {
  int64_t r = 0;
  for (; r + 4 <= c.rows; r += 4)
    for (int64_t b = c.first_block; b < c.last_block; ++b) rows_by_blocks<kCodes, 4, 1>(c, r, b);
  for (; r + 2 <= c.rows; r += 2) {
    int64_t b = c.first_block;
    for (; b + 2 <= c.last_block; b += 2) rows_by_blocks<kCodes, 2, 2>(c, r, b);
    for (; b < c.last_block; ++b) rows_by_blocks<kCodes, 2, 1>(c, r, b);
  }
  for (; r < c.rows; ++r) {
    int64_t b = c.first_block;
    for (; b + 4 <= c.last_block; b += 4) rows_by_blocks<kCodes, 1, 4>(c, r, b);
    for (; b < c.last_block; ++b) rows_by_blocks<kCodes, 1, 1>(c, r, b);
  }
}

}  // namespace

void f32_avx2(const Call& c) { plain<Codes::f32>(c); }
void f16_avx2(const Call& c) { plain<Codes::f16>(c); }
void bf16_avx2(const Call& c) { plain<Codes::bf16>(c); }

}  // namespace onw::matmul_kernels
