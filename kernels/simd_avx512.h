// Sixteen lanes of AVX-512 behind the names of kernels/simd_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace onw {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F load(const float* p, int n) { return n == kLanes ? load(p) : _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, F x, int n) {
    if (n == kLanes) return store(p, x);
    _mm512_mask_storeu_ps(p, first(n), x);
  }
  static F load_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }

  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F copysign(F x, F sign) {
    return _mm512_or_ps(_mm512_andnot_ps(set(-0.0f), x), _mm512_and_ps(set(-0.0f), sign));
  }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M not_less_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
  static F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  static M lanes(int from, int to) { return static_cast<M>(below(to) & ~below(from)); }

  static F scale_by_power(F p, F shifted) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
  }

  // p * 2^n where x >= least or is NaN, else 0.
  static F scale_or_zero(F p, F n, F x, F least) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), p, n);
  }

  static I izero() { return _mm512_setzero_si512(); }
  static I max_magnitude(I m, F x) { return _mm512_max_epi32(m, _mm512_castps_si512(abs(x))); }
  static float reduce_max(I m) {
    __m256i h = _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(q));
  }
  static float reduce_max(F m) {
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
  }
  static I round(F x) { return _mm512_cvtps_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static I add(I a, I b) { return _mm512_add_epi32(a, b); }
  static int32_t reduce_add(I x) {
    const __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
  }
  static void store_codes(int8_t* p, const I (&x)[1]) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x[0]));
  }

  static I set_int(int32_t x) { return _mm512_set1_epi32(x); }
  static I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static I quad(const void* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return set_int(four);
  }
  static I dot(I acc, I u, I s) { return _mm512_dpbusd_epi32(acc, u, s); }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  static I times_256(I x) { return _mm512_slli_epi32(x, 8); }
  static void store_low_high(uint8_t* low, uint8_t* high, const I (&x)[2]) {
    // The low bytes of each four lanes, then their second bytes; then the words in order. (vpermi2b is three
    // steps inside as well, and needs VBMI, which Cascade Lake lacks.)
    const I pick = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0));
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const I bytes = _mm512_permutex2var_epi32(_mm512_shuffle_epi8(x[0], pick), order, _mm512_shuffle_epi8(x[1], pick));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_castsi512_si256(bytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm512_extracti64x4_epi64(bytes, 1));
  }
  static void store_half(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static float first_lane(F x) { return _mm512_cvtss_f32(x); }

  static float fold(const F (&partial)[1]) {
    const __m256 eight = _mm512_castps512_ps256(partial[0]) + _mm512_extractf32x8_ps(partial[0], 1);
    __m128 h = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
    h = h + _mm_movehl_ps(h, h);
    return _mm_cvtss_f32(h + _mm_movehdup_ps(h));
  }

 private:
  static M first(int n) { return static_cast<M>((1u << n) - 1); }
  static uint32_t below(int n) { return n <= 0 ? 0 : n >= 16 ? 0xffffu : (1u << n) - 1; }
};

}  // namespace
}  // namespace onw
