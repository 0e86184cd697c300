#include <immintrin.h>

#include "kernels/roof/loops.h"

namespace onw::roof {

// Twelve independent chains of the 256-bit vpdpbusd.
int64_t dot_avxvnni(int64_t iterations) {
  __m256i sum[12];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(7);
  const __m256i b = _mm256_set1_epi8(3);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 12; ++j) sum[j] = _mm256_dpbusd_avx_epi32(sum[j], a, b);
    __asm__ volatile("" : "+x"(a));
  }
  for (auto& s : sum) __asm__ volatile("" : "+x"(s));
  return iterations * 12 * 64;
}

}  // namespace onw::roof
