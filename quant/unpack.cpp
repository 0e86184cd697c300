#include "quant/unpack.h"

#include <cstring>
#include <vector>

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

// The stored byte or nibble of every input of one row, as `rows` stores it (unsigned bits).
void read_codes(const WeightView& w, const FormatInfo& f, int64_t output, std::span<uint8_t> codes) {
  const auto* base = reinterpret_cast<const uint8_t*>(w.codes.data());
  const auto inputs = static_cast<int64_t>(codes.size());
  if (w.layout == Layout::rows) {
    const uint8_t* row = base + output * inputs * f.storage_bits / 8;
    const int per_byte_log2 = f.storage_bits == 8 ? 0 : f.storage_bits == 4 ? 1 : 2;
    const int mask = (1 << f.storage_bits) - 1;
    for (int64_t i = 0; i < inputs; ++i) {
      const int64_t bit = (i << (3 - per_byte_log2)) & 7;
      codes[i] = static_cast<uint8_t>(row[i >> per_byte_log2] >> bit & mask);
    }
    return;
  }
  const auto flip = static_cast<uint8_t>(tiles_flip(f));
  const uint8_t* block = base + output / 16 * inputs * f.storage_bits * 2;  // 16 outputs of storage_bits / 8 bytes
  const int64_t lane = output % 16 * 4;
  for (int64_t i = 0; i < inputs; ++i) {
    const int64_t quad = i / 4;
    if (f.storage_bits == 8) {
      codes[i] = block[quad * 64 + lane + i % 4] ^ flip;
    } else if (f.storage_bits == 2) {
      codes[i] = static_cast<uint8_t>(block[quad / 4 * 64 + lane + i % 4] >> (quad % 4 * 2) & 3);
    } else {
      codes[i] = static_cast<uint8_t>((block[quad / 2 * 64 + lane + i % 4] >> (quad % 2 * 4) & 15) ^ flip);
    }
  }
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
  std::vector<uint8_t> codes(weight.inputs);
  read_codes(weight, f, output, codes);
  const CodeValues& table = code_values(f);
  for (size_t i = 0; i < codes.size(); ++i)
    values[i] = f.storage_bits == 8 ? static_cast<int8_t>(codes[i]) : table.value[codes[i]];
  for (int64_t g = 0; g < weight.groups(); ++g) {
    const int64_t at = scale_index(weight, output, g);
    scales[g] = half_to_float(read_half(weight.scales, at)) * table.step;
    if (f.minimum) minima[g] = half_to_float(read_half(weight.minima, at));
  }
}

void dequantise_row(const WeightView& weight, int64_t output, std::span<float> out) {
  CHECK(static_cast<int64_t>(out.size()) == weight.inputs);
  const FormatInfo& f = info(weight.format);
  if (f.plain()) {
    CHECK(output >= 0 && output < weight.padded_outputs());
    return read_plain(weight, output, out);
  }
  std::vector<int8_t> values(weight.inputs);
  std::vector<float> scales(weight.groups()), minima(f.minimum ? weight.groups() : 0);
  unpack_row(weight, output, values, scales, minima);
  const int64_t group = weight.group();
  for (int64_t i = 0; i < weight.inputs; ++i) {
    out[i] = scales[i / group] * static_cast<float>(values[i]);
    if (f.minimum) out[i] += minima[i / group];
  }
}

void dequantise_row_true_nf4(const WeightView& weight, int64_t output, std::span<float> out) {
  CHECK(weight.format == WeightFormat::nf4c && static_cast<int64_t>(out.size()) == weight.inputs);
  std::vector<uint8_t> codes(weight.inputs);
  read_codes(weight, info(weight.format), output, codes);
  const float scale = half_to_float(read_half(weight.scales, scale_index(weight, output, 0)));
  for (int64_t i = 0; i < weight.inputs; ++i) out[i] = scale * nf4_levels()[codes[i]];
}

}  // namespace onw
