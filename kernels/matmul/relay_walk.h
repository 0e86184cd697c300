// The walk over 16 rows that the instruction sets with vectors share (relay.h).
#pragma once

#include <immintrin.h>

#include "kernels/matmul/call.h"
#include "kernels/matmul/relay.h"

#define ONW_UNROLL _Pragma("clang loop unroll(full)")

namespace onw::matmul_kernels {

// `four_lines(row, at, to)` makes four lines of bytes [at, at + 16) of each of the 16 rows.
template <class FourLines>
ONW_ALWAYS_INLINE void relay_walk(const Relay& r, const FourLines& four_lines) {
  constexpr int64_t kAhead = 512;  // bytes of each row that prefetching runs ahead; at its end, into the next 16 rows
  const uint8_t* row[16];
  for (int64_t i = 0; i < 16; ++i) row[i] = r.from + least(i, r.rows - 1) * r.row_bytes;
  uint8_t* to = r.to;
  int64_t at = 0;
  for (; at + 16 <= r.row_bytes; at += 16, to += 256) {
    if (at % 64 == 0) {
      const int64_t ahead = at + kAhead + (at + kAhead < r.row_bytes ? 0 : 15 * r.row_bytes);
      ONW_UNROLL for (int i = 0; i < 16; ++i) _mm_prefetch(reinterpret_cast<const char*>(row[i]) + ahead, _MM_HINT_T0);
    }
    four_lines(row, at, to);
  }
  if (at < r.row_bytes) {
    Relay rest = r;
    rest.to = to;
    relay_rest(rest, at);
  }
}

}  // namespace onw::matmul_kernels
