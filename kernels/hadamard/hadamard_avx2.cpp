#include <immintrin.h>

#include "kernels/hadamard/stages.h"

namespace onw::hadamard_kernels {
namespace {

// a + b where the partner lies behind, a - b where it lies before: the partner plus x with its sign turned there.
inline __attribute__((always_inline)) __m256 step(__m256 x, __m256 partner, __m256 turned) {
  return _mm256_add_ps(partner, _mm256_xor_ps(x, turned));
}

// The stages 1, 2 and 4.
inline __attribute__((always_inline)) __m256 within(__m256 x) {
  const float m = -0.0f;
  x = step(x, _mm256_permute_ps(x, 0xb1), _mm256_setr_ps(0, m, 0, m, 0, m, 0, m));
  x = step(x, _mm256_permute_ps(x, 0x4e), _mm256_setr_ps(0, 0, m, m, 0, 0, m, m));
  return step(x, _mm256_permute2f128_ps(x, x, 1), _mm256_setr_ps(0, 0, 0, 0, m, m, m, m));
}

}  // namespace

void stages_avx2(float* z, int64_t block) {
  for (int64_t i = 0; i < block; i += 8) _mm256_storeu_ps(z + i, within(_mm256_loadu_ps(z + i)));
  for (int64_t h = 8; h < block; h *= 2)
    for (int64_t i = 0; i < block; i += 2 * h)
      for (int64_t k = i; k < i + h; k += 8) {
        const __m256 a = _mm256_loadu_ps(z + k), b = _mm256_loadu_ps(z + k + h);
        _mm256_storeu_ps(z + k, _mm256_add_ps(a, b));
        _mm256_storeu_ps(z + k + h, _mm256_sub_ps(a, b));
      }
}

}  // namespace onw::hadamard_kernels
