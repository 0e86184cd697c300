// Eight lanes of AVX2 behind the names that kernels/float_forms.h, rowops/ and attention/ use. For files compiled with
// AVX2 alone; the anonymous namespace keeps every instance out of other files' symbols.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace onw {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  using F = __m256;   // + - * / are the compiler's
  using I = __m256i;  // eight int32
  using M = __m256;   // all ones or all zeros in each lane

  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  // The first n of the lanes (1..8); what is not loaded is 0, what is not stored is not touched.
  static F load(const float* p, int n) { return n == kLanes ? load(p) : _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, F x, int n) {
    if (n == kLanes) return store(p, x);
    _mm256_maskstore_ps(p, first(n), x);
  }
  static F load_half(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F abs(F x) { return _mm256_andnot_ps(set(-0.0f), x); }
  static F copysign(F x, F sign) {
    return _mm256_or_ps(_mm256_andnot_ps(set(-0.0f), x), _mm256_and_ps(set(-0.0f), sign));
  }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }  // a > b ? a : b
  static M less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M not_less_equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_NLE_UQ); }
  static F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
  static M lanes(int from, int to) {  // lanes from..to - 1; any values
    const __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), i),
                                               _mm256_cmpgt_epi32(_mm256_set1_epi32(to), i));
    return _mm256_castsi256_ps(inside);
  }

  // p * 2^n, n in the low bits of `shifted`.
  static F scale_by_power(F p, F shifted) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  }

  // Bit patterns of |x|, whose largest as integers is the largest number, or a NaN.
  static I izero() { return _mm256_setzero_si256(); }
  static I max_magnitude(I m, F x) { return _mm256_max_epi32(m, _mm256_castps_si256(abs(x))); }
  static float reduce_max(I m) {
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(h));
  }
  static float reduce_max(F m) {  // no NaN
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  }
  static I round(F x) { return _mm256_cvtps_epi32(x); }  // to nearest even
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static I add(I a, I b) { return _mm256_add_epi32(a, b); }
  static int32_t reduce_add(I x) {
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
  }
  // 16 codes within [-128, 127] from two vectors.
  static void store_codes(int8_t* p, const I (&x)[2]) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x[0], x[1]), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }

  // What attention adds: bytes four to a lane.
  static I set_int(int32_t x) { return _mm256_set1_epi32(x); }
  static I load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static I quad(const void* p) {  // the same four bytes in every lane
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return set_int(four);
  }
  // acc + the sum of four products, unsigned by signed, exact. (vpmaddubsw would saturate: 2 * 255 * 127 > 2^15.)
  static I dot(I acc, I u, I s) {
    const I u_even = _mm256_and_si256(u, _mm256_set1_epi16(0xff)), u_odd = _mm256_srli_epi16(u, 8);
    const I s_even = _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8), s_odd = _mm256_srai_epi16(s, 8);
    return add(add(acc, _mm256_madd_epi16(u_even, s_even)), _mm256_madd_epi16(u_odd, s_odd));
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  static I times_256(I x) { return _mm256_slli_epi32(x, 8); }
  // The two bytes of 32 numbers of 16 bits, apart.
  static void store_low_high(uint8_t* low, uint8_t* high, const I (&x)[4]) {
    const I mask = _mm256_set1_epi16(0xff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const I a = _mm256_packus_epi32(x[0], x[1]), b = _mm256_packus_epi32(x[2], x[3]);
    const I low_bytes = _mm256_packus_epi16(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
    const I high_bytes = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    _mm256_storeu_si256(reinterpret_cast<I*>(low), _mm256_permutevar8x32_epi32(low_bytes, order));
    _mm256_storeu_si256(reinterpret_cast<I*>(high), _mm256_permutevar8x32_epi32(high_bytes, order));
  }
  static void store_half(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static float first_lane(F x) { return _mm256_cvtss_f32(x); }

  // 16 partial sums, folded 8-4-2-1.
  static float fold(const F (&partial)[2]) {
    const F eight = partial[0] + partial[1];
    __m128 h = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
    h = h + _mm_movehl_ps(h, h);
    return _mm_cvtss_f32(h + _mm_movehdup_ps(h));
  }

 private:
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace onw
