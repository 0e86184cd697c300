#include "kernels/matmul/relay_walk.h"

namespace onw::matmul_kernels {
namespace {

// Bytes 0, 2, 1, 3 of each word, then the middle nibbles of each half swapped.
ONW_ALWAYS_INLINE __m256i in_tile_order(__m256i v) {
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  v = _mm256_shuffle_epi8(v, bytes);
  const __m256i outer = _mm256_and_si256(v, _mm256_set1_epi16(static_cast<int16_t>(0xf00f)));
  const __m256i third = _mm256_and_si256(_mm256_slli_epi16(v, 4), _mm256_set1_epi16(0x0f00));
  const __m256i second = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi16(0x00f0));
  return _mm256_or_si256(outer, _mm256_or_si256(second, third));
}

// A square of sixteen 2-bit codes in each word, transposed.
ONW_ALWAYS_INLINE __m256i twos_in_tile_order(__m256i v) {
  __m256i moved = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi32(v, 12)), _mm256_set1_epi32(0x0000f0f0));
  v = _mm256_xor_si256(v, _mm256_xor_si256(moved, _mm256_slli_epi32(moved, 12)));
  moved = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi32(v, 6)), _mm256_set1_epi32(0x00cc00cc));
  return _mm256_xor_si256(v, _mm256_xor_si256(moved, _mm256_slli_epi32(moved, 6)));
}

template <int kCodeBits>
ONW_ALWAYS_INLINE __m256i ordered(__m256i v) {
  if constexpr (kCodeBits == 4) return in_tile_order(v);
  if constexpr (kCodeBits == 2) return twos_in_tile_order(v);
  return v;
}

// 16 bytes of rows j and 4 + j of half a block.
ONW_ALWAYS_INLINE __m256i two_rows(const uint8_t* const* row, int64_t at, int j) {
  const auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[i] + at)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load(j)), load(j + 4), 1);
}

template <int kCodeBits>
ONW_ALWAYS_INLINE void relay(const Relay& r) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(r.flip));
  relay_walk(r, [flip](const uint8_t* const* row, int64_t at, uint8_t* to) __attribute__((always_inline)) {
    ONW_UNROLL for (int h = 0; h < 2; ++h) {
      __m256i v[4];
      ONW_UNROLL for (int j = 0; j < 4; ++j) v[j] = two_rows(row + h * 8, at, j);
      const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
      const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
      v[0] = _mm256_unpacklo_epi64(a, c);
      v[1] = _mm256_unpackhi_epi64(a, c);
      v[2] = _mm256_unpacklo_epi64(b, d);
      v[3] = _mm256_unpackhi_epi64(b, d);
      ONW_UNROLL for (int j = 0; j < 4; ++j) _mm256_store_si256(reinterpret_cast<__m256i*>(to + j * 64 + h * 32),
                                                                _mm256_xor_si256(ordered<kCodeBits>(v[j]), flip));
    }
  });
}

}  // namespace

void relay_avx2(const Relay& r) {
  if (r.code_bits == 4) return relay<4>(r);
  if (r.code_bits == 2) return relay<2>(r);
  relay<8>(r);
}

}  // namespace onw::matmul_kernels
