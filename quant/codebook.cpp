#include "quant/codebook.h"

#include <cmath>

namespace onw {
namespace {

constexpr std::array<float, 16> kNf4 = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

constexpr CodeValues kSigned{{0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1}, 1.0f};
constexpr CodeValues kUnsigned{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 1.0f};
constexpr CodeValues kIq4Nl{{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, 1.0f};
constexpr CodeValues kFp4{{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}, 0.5f};

CodeValues rounded_nf4() {
  CodeValues v;
  for (size_t i = 0; i < 16; ++i) v.value[i] = static_cast<int8_t>(std::lround(127.0f * kNf4[i]));
  v.step = 1.0f / 127.0f;
  return v;
}

}  // namespace

const std::array<float, 16>& nf4_levels() { return kNf4; }

const CodeValues& code_values(const FormatInfo& format) {
  static const CodeValues nf4 = rounded_nf4();
  switch (format.codebook) {
    case Codebook::nf4:
      return nf4;
    case Codebook::iq4_nl:
      return kIq4Nl;
    case Codebook::fp4_e2m1:
      return kFp4;
    case Codebook::none:
    case Codebook::integer:
      break;
  }
  return format.minimum ? kUnsigned : kSigned;
}

int tiles_flip(const FormatInfo& format) {
  if (format.codebook != Codebook::integer || format.minimum) return 0;
  return format.storage_bits == 8 ? 0x80 : 0x8;
}

CodeRange code_range(const FormatInfo& format) {
  const int levels = 1 << format.bits;
  if (format.codebook != Codebook::integer || format.minimum) return {0, levels - 1};
  return {-levels / 2, levels / 2 - 1};
}

}  // namespace onw
