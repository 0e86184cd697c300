// Weight formats as data: what the codes mean, how they are grouped, what scales them. One row per name, never
// a switch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace onw {

// Every format that a weight can have on disk and in memory. The names are those of `--format`.
enum class WeightFormat : uint8_t {
  f32,
  f16,
  bf16,
  q8c,
  q8g128,
  q8g64,
  q8g32,
  q4g128,
  q4g64,
  q4g32,
  q4sg128,
  q4sg64,
  q4sg32,
  q4c,
  q4g32m,
  q5g32m,
  nf4c,
  iq4g32,
  u2g128,
  mxfp4,
  e4g32,
};

// How a code becomes a number before its scale.
enum class Codebook : uint8_t {
  none,      // a plain number
  integer,   // two's complement, or unsigned where there is a minimum
  nf4,       // NF4's 16 levels; on the CPU round(127 * level) / 127
  iq4_nl,    // IQ4_NL's 16 INT8 levels
  fp4_e2m1,  // MXFP4; its scales, which are powers of two, are kept as F16
};

enum class ScaleType : uint8_t { none, f16 };

struct FormatInfo {
  WeightFormat format;
  std::string_view name;
  int bits;  // of one code in meaning; storage_bits says what it takes in the file
  int storage_bits;
  Codebook codebook;
  int group;  // inputs that share one scale; 0: one scale per output channel; for plain formats 0
  ScaleType scale;
  bool minimum;          // w = d * code + m, codes unsigned
  bool symmetric_shift;  // q4sg*: the scale is the larger of max/7 and -min/8, never negative
  bool plain() const { return codebook == Codebook::none; }
};

std::span<const FormatInfo> all_formats();
const FormatInfo& info(WeightFormat format);
std::string_view name(WeightFormat format);
std::optional<WeightFormat> weight_format(std::string_view name);

// The order of the codes in the file: docs/arithmetic.md.
//   rows : row-major [out, in]; nibbles low first, two's complement (unsigned where the format has a minimum).
//   tiles: 16 outputs x 4 inputs per line, offset binary (formats with a minimum excepted), outputs padded to 16,
//          two 4-bit lines in one line of 64 bytes.
enum class Layout : uint8_t { rows, tiles };
std::string_view name(Layout layout);
std::optional<Layout> layout(std::string_view name);

// The largest of 128, 64, 32 that divides `inputs`; 0 where none does (then such a weight stays F16).
int group_for(int64_t inputs);

// `asked` with the group that `inputs` allows: q4g128 for 576 inputs is q4g64; f16 where no group fits a grouped format
// or the kernels cannot take the width. Per-channel formats keep their name where 32 divides the inputs.
WeightFormat fit(WeightFormat asked, int64_t inputs);

}  // namespace onw
