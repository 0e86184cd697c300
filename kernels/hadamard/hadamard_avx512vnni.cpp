#include <immintrin.h>

#include "kernels/hadamard/stages.h"

namespace onw::hadamard_kernels {
namespace {

// The partner plus x, whose sign is turned in the lanes of `turned`.
inline __attribute__((always_inline)) __m512 step(__m512 x, __m512 partner, __mmask16 turned) {
  return _mm512_mask_sub_ps(_mm512_add_ps(partner, x), turned, partner, x);
}

// The stages 1, 2, 4 and 8.
inline __attribute__((always_inline)) __m512 within(__m512 x) {
  x = step(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
  x = step(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  x = step(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  return step(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

}  // namespace

void stages_avx512vnni(float* z, int64_t block) {
  for (int64_t i = 0; i < block; i += 16) _mm512_storeu_ps(z + i, within(_mm512_loadu_ps(z + i)));
  for (int64_t h = 16; h < block; h *= 2)
    for (int64_t i = 0; i < block; i += 2 * h)
      for (int64_t k = i; k < i + h; k += 16) {
        const __m512 a = _mm512_loadu_ps(z + k), b = _mm512_loadu_ps(z + k + h);
        _mm512_storeu_ps(z + k, _mm512_add_ps(a, b));
        _mm512_storeu_ps(z + k + h, _mm512_sub_ps(a, b));
      }
}

}  // namespace onw::hadamard_kernels
