#include "kernels/matmul/relay_walk.h"

namespace onw::matmul_kernels {
namespace {

// Bytes 0, 2, 1, 3 of each word, then the middle nibbles of each half swapped.
ONW_ALWAYS_INLINE __m512i in_tile_order(__m512i v) {
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  const __m512i outer = _mm512_set1_epi16(static_cast<int16_t>(0xf00f)), second = _mm512_set1_epi16(0x00f0);
  v = _mm512_shuffle_epi8(v, bytes);
  const __m512i left = _mm512_ternarylogic_epi32(outer, v, _mm512_slli_epi16(v, 4), 0xca);  // outer ? v : v << 4
  return _mm512_ternarylogic_epi32(second, _mm512_srli_epi16(v, 4), left, 0xca);
}

// A square of sixteen 2-bit codes in each word, transposed.
ONW_ALWAYS_INLINE __m512i twos_in_tile_order(__m512i v) {
  __m512i moved = _mm512_and_si512(_mm512_xor_si512(v, _mm512_srli_epi32(v, 12)), _mm512_set1_epi32(0x0000f0f0));
  v = _mm512_xor_si512(v, _mm512_xor_si512(moved, _mm512_slli_epi32(moved, 12)));
  moved = _mm512_and_si512(_mm512_xor_si512(v, _mm512_srli_epi32(v, 6)), _mm512_set1_epi32(0x00cc00cc));
  return _mm512_xor_si512(v, _mm512_xor_si512(moved, _mm512_slli_epi32(moved, 6)));
}

template <int kCodeBits>
ONW_ALWAYS_INLINE __m512i ordered(__m512i v) {
  if constexpr (kCodeBits == 4) return in_tile_order(v);
  if constexpr (kCodeBits == 2) return twos_in_tile_order(v);
  return v;
}

// 16 bytes of rows j, 4 + j, 8 + j, 12 + j.
ONW_ALWAYS_INLINE __m512i four_rows(const uint8_t* const* row, int64_t at, int j) {
  const auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[j + i * 4] + at)); };
  __m512i v = _mm512_castsi128_si512(load(0));
  v = _mm512_inserti32x4(v, load(1), 1);
  v = _mm512_inserti32x4(v, load(2), 2);
  return _mm512_inserti32x4(v, load(3), 3);
}

template <int kCodeBits>
ONW_ALWAYS_INLINE void relay(const Relay& r) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(r.flip));
  relay_walk(r, [flip](const uint8_t* const* row, int64_t at, uint8_t* to) __attribute__((always_inline)) {
    __m512i v[4];
    ONW_UNROLL for (int j = 0; j < 4; ++j) v[j] = four_rows(row, at, j);
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
    ONW_UNROLL for (int j = 0; j < 4; ++j)
        _mm512_store_si512(to + j * 64, _mm512_xor_si512(ordered<kCodeBits>(v[j]), flip));
  });
}

}  // namespace

void relay_avx512vnni(const Relay& r) {
  if (r.code_bits == 4) return relay<4>(r);
  if (r.code_bits == 2) return relay<2>(r);
  relay<8>(r);
}

}  // namespace onw::matmul_kernels
