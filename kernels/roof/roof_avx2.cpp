#include <immintrin.h>

#include "kernels/roof/loops.h"

namespace onw::roof {

uint64_t read_avx2(const std::byte* p, size_t bytes) {
  __m256i x = _mm256_setzero_si256(), y = x;
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(p) + i + 4096, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p) + i + 4160, _MM_HINT_T0);
    const auto* v = reinterpret_cast<const __m256i*>(p + i);
    x = _mm256_xor_si256(x, _mm256_xor_si256(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)));
    y = _mm256_xor_si256(y, _mm256_xor_si256(_mm256_loadu_si256(v + 2), _mm256_loadu_si256(v + 3)));
  }
  return static_cast<uint64_t>(_mm256_extract_epi64(_mm256_xor_si256(x, y), 0));
}

// vpmaddubsw with its 16-bit addition, as the 4-bit kernels use it: 32 products a pair.
int64_t dot_avx2(int64_t iterations) {
  __m256i sum[12];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(7);
  const __m256i b = _mm256_set1_epi8(3);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 12; ++j) {
      __asm__ volatile("" : "+x"(a));  // or one product would serve all twelve
      sum[j] = _mm256_add_epi16(sum[j], _mm256_maddubs_epi16(a, b));
    }
  }
  for (auto& s : sum) __asm__ volatile("" : "+x"(s));
  return iterations * 12 * 64;
}

}  // namespace onw::roof
