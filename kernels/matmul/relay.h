// From the layout `rows` to `tiles` on the way to a kernel: 16 outputs at a time, into memory that stays in the L2
// cache.
#pragma once

#include <cstdint>

namespace onw::matmul_kernels {

// Rows of 4-byte words, to lines of one word of each of 16 rows.
struct Relay {
  const uint8_t* from;  // row i at from + i * row_bytes
  int64_t row_bytes;    // a multiple of 4
  int64_t rows;         // 1 to 16; the lines of fewer rows repeat the last one
  int code_bits;        // 4: a word is eight codes in order: make it low nibbles 0..3, high nibbles 4..7; 2: sixteen
                        // codes: byte i becomes codes i, 4 + i, 8 + i, 12 + i, low first; 8: words stay as they are
  uint8_t flip;         // xor to every byte
  uint8_t* to;          // [row_bytes / 4][64], aligned to 64
};

using RelayFunction = void (*)(const Relay&);
void relay_generic(const Relay& r);
void relay_rest(const Relay& r, int64_t at);  // bytes [at, row_bytes) of every row; the first line goes to `to`
void relay_avx2(const Relay& r);
void relay_avx512vnni(const Relay& r);

}  // namespace onw::matmul_kernels
