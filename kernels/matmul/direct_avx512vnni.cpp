// One to eight rows: bound by reading the weights, so codes go from memory to the dot product without a stop in
// between.
#include "kernels/matmul/functions.h"
#include "kernels/matmul/tiles_avx512vnni.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {
namespace {

constexpr int64_t kAhead = 2048;

// How a single row reads its weights. Two blocks at once read two streams, which is what reaches the roof on a Xeon;
// prefetching 2 KB ahead into L1 is the best of the distances and hints tried there (prefetchnta more than halves the
// speed; 2026-11). AMD's processors read one stream ahead by themselves, and are slower with help: of one thread's
// roof, 4 bits 90 % in place of 68 %, 8 bits 96 % in place of 84 % (EPYC, Zen 4, 2026-12).
enum class Reading { ahead, as_it_comes };

// kRows rows by kBlocks blocks from block `first`.
template <Codes kCodes, int kRows, int kBlocks, Reading kReading = Reading::ahead>
ONW_ALWAYS_INLINE void rows_by_blocks(const Call& c, int64_t first) {
  constexpr int kQuads = kCodes == Codes::bytes ? 1 : 2;  // in a line of 64 bytes
  constexpr int kChains = kRows <= 2 ? 2 : 1;             // with few sums one chain would wait for its own result
  const __m512i table = level_table(c, kCodes == Codes::levels ? 128 : 0);
  const int32_t lines = c.depth / 4 / kQuads;
  const int64_t block_bytes = c.inputs * 16 / kQuads;
  const uint8_t* codes = c.codes + first * block_bytes;
  const int32_t offset = kCodes == Codes::levels ? 128 : c.offset;
  __m512 acc[kRows][kBlocks];
  ONW_UNROLL for (int r = 0; r < kRows; ++r) ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b] =
      _mm512_setzero_ps();

  for (int64_t g = 0; g < c.inputs / c.depth; ++g) {
    const Group group = group_at(c, g);
    const uint8_t* line = codes + g * lines * 64;
    __m512i sum[kChains][kRows][kBlocks];
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512i start = _mm512_set1_epi32(start_sum(c, group, r, offset));
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        sum[0][r][b] = start;
        if constexpr (kChains == 2) sum[1][r][b] = _mm512_setzero_si512();
      }
    }
    const int8_t* x = group.x;
    // The streams end, and those of the next blocks begin kBlocks - 1 blocks further: there, not in what has been read.
    [[maybe_unused]] const int64_t ahead =
        (g + 1) * lines * 64 + kAhead > block_bytes ? kAhead + (kBlocks - 1) * block_bytes : kAhead;
    for (int32_t l = 0; l < lines; l += 4) {
      ONW_UNROLL for (int i = 0; i < 4; ++i) {
        __m512i low[kBlocks], high[kBlocks];
        ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
          const uint8_t* p = line + b * block_bytes + i * 64;
          if constexpr (kReading == Reading::ahead) _mm_prefetch(reinterpret_cast<const char*>(p) + ahead, _MM_HINT_T0);
          const __m512i v = _mm512_loadu_si512(p);
          if constexpr (kCodes == Codes::bytes) {
            low[b] = v;
          } else {
            split<kCodes>(v, table, low[b], high[b]);
          }
        }
        ONW_UNROLL for (int r = 0; r < kRows; ++r) {
          const int8_t* quad = x + (static_cast<int64_t>(r) << c.x_shift) + i * 4 * kQuads;
          const __m512i x0 = quad_of(quad);
          ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
            __m512i& s = sum[kQuads == 1 ? i % kChains : 0][r][b];
            s = _mm512_dpbusd_epi32(s, low[b], x0);
          }
          if constexpr (kQuads == 2) {
            const __m512i x1 = quad_of(quad + 4);
            ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
              __m512i& s = sum[kChains - 1][r][b];
              s = _mm512_dpbusd_epi32(s, high[b], x1);
            }
          }
        }
      }
      line += 4 * 64;
      x += 4 * 4 * kQuads;
    }
    __m512 scale[kBlocks];
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
      scale[b] = scales_of(c, group, first + b);
      prefetch_scales(c, group, first + kBlocks + b);
    }
    ONW_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512 x_scale = _mm512_set1_ps(group.x_scales[r]);
      ONW_UNROLL for (int b = 0; b < kBlocks; ++b) {
        __m512i s = sum[0][r][b];
        if constexpr (kChains == 2) s = _mm512_add_epi32(s, sum[1][r][b]);
        acc[r][b] = add_sums(s, scale[b], x_scale, acc[r][b]);
      }
    }
    if (c.minima != nullptr) {
      ONW_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m512 x_scale = _mm512_set1_ps(group.x_scales[r]);
        const __m512i x_sum = _mm512_set1_epi32(code_sum(c, group, r));
        ONW_UNROLL for (int b = 0; b < kBlocks; ++b) acc[r][b] =
            add_sums(x_sum, minima_of(c, group, first + b), x_scale, acc[r][b]);
      }
    }
  }
  for (int r = 0; r < least(kRows, c.rows); ++r)
    ONW_UNROLL for (int b = 0; b < kBlocks; ++b) store_block(c, r, first + b, acc[r][b]);
}

template <Codes kCodes, int kRows>
void rows(const Call& c) {
  int64_t b = c.first_block;
  for (; b + 2 <= c.last_block; b += 2) rows_by_blocks<kCodes, kRows, 2>(c, b);
  if (b < c.last_block) rows_by_blocks<kCodes, kRows, 1>(c, b);
}

template <Codes kCodes>
void stream(const Call& c) {
  for (int64_t b = c.first_block; b < c.last_block; ++b) rows_by_blocks<kCodes, 1, 1, Reading::as_it_comes>(c, b);
}

// 5 and 7 rows take the padding row along.
template <Codes kCodes>
ONW_ALWAYS_INLINE void few(const Call& c) {
  if (c.rows <= 2) return rows<kCodes, 2>(c);
  if (c.rows <= 3) return rows<kCodes, 3>(c);
  if (c.rows <= 4) return rows<kCodes, 4>(c);
  if (c.rows <= 6) return rows<kCodes, 6>(c);
  rows<kCodes, 8>(c);
}

}  // namespace

void nibbles_row_avx512vnni(const Call& c) { rows<Codes::nibbles, 1>(c); }
void levels_row_avx512vnni(const Call& c) { rows<Codes::levels, 1>(c); }
void bytes_row_avx512vnni(const Call& c) { rows<Codes::bytes, 1>(c); }
void nibbles_stream_avx512vnni(const Call& c) { stream<Codes::nibbles>(c); }
void levels_stream_avx512vnni(const Call& c) { stream<Codes::levels>(c); }
void bytes_stream_avx512vnni(const Call& c) { stream<Codes::bytes>(c); }
void nibbles_few_avx512vnni(const Call& c) { few<Codes::nibbles>(c); }
void levels_few_avx512vnni(const Call& c) { few<Codes::levels>(c); }
void bytes_few_avx512vnni(const Call& c) { few<Codes::bytes>(c); }

}  // namespace onw::matmul_kernels
