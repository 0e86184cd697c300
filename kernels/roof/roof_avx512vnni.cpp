#include <immintrin.h>

#include "kernels/roof/loops.h"

namespace onw::roof {

uint64_t read_avx512vnni(const std::byte* p, size_t bytes) {
  __m512i x = _mm512_setzero_si512(), y = x;
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (size_t j = 0; j < 256; j += 64) _mm_prefetch(reinterpret_cast<const char*>(p) + i + j + 4096, _MM_HINT_T0);
    x = _mm512_xor_si512(x, _mm512_xor_si512(_mm512_loadu_si512(p + i), _mm512_loadu_si512(p + i + 64)));
    y = _mm512_xor_si512(y, _mm512_xor_si512(_mm512_loadu_si512(p + i + 128), _mm512_loadu_si512(p + i + 192)));
  }
  return static_cast<uint64_t>(_mm_extract_epi64(_mm512_castsi512_si128(_mm512_xor_si512(x, y)), 0));
}

// Sixteen independent chains of the 512-bit vpdpbusd.
int64_t dot_avx512vnni(int64_t iterations) {
  __m512i sum[16];
  for (auto& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(7);
  const __m512i b = _mm512_set1_epi8(3);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 16; ++j) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    __asm__ volatile("" : "+v"(a));
  }
  for (auto& s : sum) __asm__ volatile("" : "+v"(s));
  return iterations * 16 * 128;
}

}  // namespace onw::roof
