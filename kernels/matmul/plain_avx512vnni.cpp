// Plain weights (f32, f16, bf16) by FP32 fma, inputs ascending, one sum per output.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

template <Codes kCodes>
ONW_ALWAYS_INLINE __m512 weights(const uint8_t* p) {
  if constexpr (kCodes == Codes::f32) return _mm512_loadu_ps(p);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if constexpr (kCodes == Codes::f16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// A sum waits four cycles for the one before: eight and more in flight keep the two units busy.
template <Codes kCodes, int kRows, int kBlocks>
void rows_by_blocks(const Call& c, int64_t row, int64_t first) {
  constexpr int kBytes = kCodes == Codes::f32 ? 64 : 32;
  const uint8_t* w = c.codes + first * c.inputs * kBytes;
  const float* x = c.x_plain + row * c.x_plain_stride;
  __m512 acc[kRows][kBlocks];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b] =
      _mm512_setzero_ps();
  for (int64_t k = 0; k < c.inputs; ++k) {
    __m512 v[kBlocks];
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* p = w + (b * c.inputs + k) * kBytes;
      _mm_prefetch(reinterpret_cast<const char*>(p) + 1024, _MM_HINT_T0);
      v[b] = weights<kCodes>(p);
    }
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512 xk = _mm512_set1_ps(x[r * c.x_plain_stride + k]);
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b] = _mm512_fmadd_ps(xk, v[b], acc[r][b]);
    }
  }
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b)
      store_block(c, row + r, first + b, acc[r][b]);
}

template <Codes kCodes, int kBlocks>
ONW_ALWAYS_INLINE void all_rows(const Call& c, int64_t first) {
  int64_t r = 0;
  for (; r + 6 <= c.rows; r += 6) rows_by_blocks<kCodes, 6, kBlocks>(c, r, first);
  for (; r + 2 <= c.rows; r += 2) rows_by_blocks<kCodes, 2, kBlocks>(c, r, first);
  if (r < c.rows) rows_by_blocks<kCodes, 1, kBlocks>(c, r, first);
}

template <Codes kCodes>
ONW_ALWAYS_INLINE void plain(const Call& c) {
  int64_t b = c.first_block;
  for (; b + 4 <= c.last_block; b += 4) all_rows<kCodes, 4>(c, b);
  for (; b < c.last_block; ++b) all_rows<kCodes, 1>(c, b);
}

}  // namespace

void f32_avx512vnni(const Call& c) { plain<Codes::f32>(c); }
void f16_avx512vnni(const Call& c) { plain<Codes::f16>(c); }
void bf16_avx512vnni(const Call& c) { plain<Codes::bf16>(c); }

}  // namespace onw::matmul_kernels
