#include "quant/unpack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "base/result.h"
#include "quant/codebook.h"

namespace onw {
namespace {

uint16_t read_half(std::span<const std::byte> from, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, from.data() + index * 2, 2);
  return bits;
}

// Where scale `group` of `output` lies, in elements.
int64_t scale_index(const WeightView& w, int64_t output, int64_t group) {
  if (w.layout == Layout::rows) return output * w.groups() + group;
  return (output / 16 * w.groups() + group) * 16 + output % 16;
}

// The stored bytes or nibbles of inputs [first, first + codes.size()) of one output, as `rows` stores them (unsigned
// bits).
void read_codes(const WeightView& w, const FormatInfo& f, int64_t output, int64_t first, std::span<uint8_t> codes) {
  const auto* base = reinterpret_cast<const uint8_t*>(w.codes.data());
  const auto last = first + static_cast<int64_t>(codes.size());
  if (w.layout == Layout::rows) {
    const uint8_t* row = base + output * w.inputs * f.storage_bits / 8;
    for (int64_t i = first; i < last; ++i)
      codes[i - first] = f.storage_bits == 8 ? row[i] : static_cast<uint8_t>(row[i / 2] >> (i % 2 * 4) & 15);
    return;
  }
  const auto flip = static_cast<uint8_t>(tiles_flip(f));
  const uint8_t* block = base + output / 16 * w.inputs * f.storage_bits * 2;  // 16 outputs of storage_bits / 8 bytes
  const int64_t lane = output % 16 * 4;
  for (int64_t i = first; i < last; ++i) {
    const int64_t quad = i / 4;
    if (f.storage_bits == 8) {
      codes[i - first] = block[quad * 64 + lane + i % 4] ^ flip;
    } else {
      codes[i - first] = static_cast<uint8_t>((block[quad / 2 * 64 + lane + i % 4] >> (quad % 2 * 4) & 15) ^ flip);
    }
  }
}

constexpr int64_t kPiece = 128;  // inputs; divides into every group, and a piece lies within one

// Calls f(first, codes) for one row in pieces, without allocating.
template <class F>
void for_pieces(const WeightView& w, int64_t output, const F& f) {
  std::array<uint8_t, kPiece> codes;
  const int64_t piece = std::min(kPiece, w.group());
  for (int64_t first = 0; first < w.inputs; first += piece) {
    const auto here = std::span(codes).first(std::min(piece, w.inputs - first));
    read_codes(w, info(w.format), output, first, here);
    f(first, std::span<const uint8_t>(here));
  }
}

int8_t value_of(const FormatInfo& f, uint8_t code) {
  return f.storage_bits == 8 ? static_cast<int8_t>(code) : code_values(f).value[code];
}

float scale_of(const WeightView& w, int64_t output, int64_t group) {
  return half_to_float(read_half(w.scales, scale_index(w, output, group))) * code_values(info(w.format)).step;
}

float minimum_of(const WeightView& w, int64_t output, int64_t group) {
  return half_to_float(read_half(w.minima, scale_index(w, output, group)));
}

void read_plain(const WeightView& w, int64_t output, std::span<float> out) {
  const bool tiles = w.layout == Layout::tiles;
  const int64_t first = tiles ? output / 16 * w.inputs * 16 + output % 16 : output * w.inputs;
  const int64_t stride = tiles ? 16 : 1;
  for (int64_t i = 0; i < w.inputs; ++i) {
    const int64_t at = first + i * stride;
    if (w.format == WeightFormat::f32) {
      std::memcpy(&out[i], w.codes.data() + at * 4, 4);
    } else {
      const uint16_t bits = read_half(w.codes, at);
      out[i] = w.format == WeightFormat::f16 ? half_to_float(bits) : bf16_to_float(bits);
    }
  }
}

}  // namespace

void unpack_row(const WeightView& weight, int64_t output, std::span<int8_t> values, std::span<float> scales,
                std::span<float> minima) {
  const FormatInfo& f = info(weight.format);
  CHECK(!f.plain() && output >= 0 && output < weight.padded_outputs());
  CHECK(static_cast<int64_t>(values.size()) == weight.inputs && static_cast<int64_t>(scales.size()) == weight.groups());
  for_pieces(weight, output, [&](int64_t first, std::span<const uint8_t> codes) {
    for (size_t i = 0; i < codes.size(); ++i) values[first + i] = value_of(f, codes[i]);
  });
  for (int64_t g = 0; g < weight.groups(); ++g) {
    scales[g] = scale_of(weight, output, g);
    if (f.minimum) minima[g] = minimum_of(weight, output, g);
  }
}

void dequantise_row(const WeightView& weight, int64_t output, std::span<float> out) {
  const FormatInfo& f = info(weight.format);
  CHECK(static_cast<int64_t>(out.size()) == weight.inputs && output >= 0 && output < weight.padded_outputs());
  if (f.plain()) return read_plain(weight, output, out);
  for_pieces(weight, output, [&](int64_t first, std::span<const uint8_t> codes) {
    const int64_t group = first / weight.group();
    const float scale = scale_of(weight, output, group);
    const float minimum = f.minimum ? minimum_of(weight, output, group) : 0.0f;
    for (size_t i = 0; i < codes.size(); ++i) {
      const float w = scale * static_cast<float>(value_of(f, codes[i]));
      out[first + i] = f.minimum ? w + minimum : w;
    }
  });
}

void dequantise_row_true_nf4(const WeightView& weight, int64_t output, std::span<float> out) {
  CHECK(weight.format == WeightFormat::nf4c && static_cast<int64_t>(out.size()) == weight.inputs);
  const float scale = half_to_float(read_half(weight.scales, scale_index(weight, output, 0)));
  for_pieces(weight, output, [&](int64_t first, std::span<const uint8_t> codes) {
    for (size_t i = 0; i < codes.size(); ++i) out[first + i] = scale * nf4_levels()[codes[i]];
  });
}

}  // namespace onw
