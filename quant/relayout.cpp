#include "quant/relayout.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "quant/codebook.h"

namespace onw {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Four nibbles of the low 16 bits, one per byte, and back.
uint32_t spread(uint32_t nibbles) {
  nibbles = (nibbles | nibbles << 8) & 0x00ff00ffu;
  return (nibbles | nibbles << 4) & 0x0f0f0f0fu;
}
uint32_t gather(uint32_t bytes) {
  bytes = (bytes | bytes >> 4) & 0x00ff00ffu;
  return (bytes | bytes >> 8) & 0xffffu;
}

// Eight inputs of one output: in `rows` eight nibbles in order, in `tiles` byte i = input i | input 4 + i << 4.
uint32_t nibbles_to_tile(uint32_t row) { return spread(row & 0xffffu) | spread(row >> 16) << 4; }
uint32_t nibbles_to_row(uint32_t tile) { return gather(tile & 0x0f0f0f0fu) | gather(tile >> 4 & 0x0f0f0f0fu) << 16; }

// Sixteen inputs of one output: in `rows` sixteen codes of 2 bits in order, in `tiles` byte i = inputs i, 4 + i, 8 + i,
// 12 + i, low first. Rows and columns of a square change places, so the same steps lead back.
uint32_t transpose_codes_of_2(uint32_t word) {
  uint32_t moved = (word ^ word >> 12) & 0x0000f0f0u;
  word ^= moved ^ moved << 12;
  moved = (word ^ word >> 6) & 0x00cc00ccu;
  return word ^ moved ^ moved << 6;
}

// 32-bit words of a block of 16 outputs: `rows` [outputs, words], `tiles` [words, 16].
template <class Change>
void words_to_tiles(const std::byte* rows, int64_t outputs, int64_t words, std::byte* tiles, Change change) {
  for (int64_t k = 0; k < words; ++k)
    for (int64_t o = 0; o < 16; ++o)
      store(tiles + (k * 16 + o) * 4, o < outputs ? change(load<uint32_t>(rows + (o * words + k) * 4)) : change(0));
}
template <class Change>
void words_to_rows(const std::byte* tiles, int64_t outputs, int64_t words, std::byte* rows, Change change) {
  for (int64_t k = 0; k < words; ++k)
    for (int64_t o = 0; o < outputs; ++o)
      store(rows + (o * words + k) * 4, change(load<uint32_t>(tiles + (k * 16 + o) * 4)));
}

// Elements of T: `rows` [outputs, n], `tiles` [n, 16].
template <class T>
void transpose(Layout from, const std::byte* in, int64_t outputs, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t o = 0; o < 16; ++o) {
      const int64_t row = (o * n + i) * static_cast<int64_t>(sizeof(T));
      const int64_t tile = (i * 16 + o) * static_cast<int64_t>(sizeof(T));
      if (from == Layout::rows) {
        store(out + tile, o < outputs ? load<T>(in + row) : T{});
      } else if (o < outputs) {
        store(out + row, load<T>(in + tile));
      }
    }
}

void transpose(Layout from, int64_t element_bytes, const std::byte* in, int64_t outputs, int64_t n, std::byte* out) {
  if (element_bytes == 4) return transpose<uint32_t>(from, in, outputs, n, out);
  if (element_bytes == 2) return transpose<uint16_t>(from, in, outputs, n, out);
  transpose<uint8_t>(from, in, outputs, n, out);
}

void relayout_codes(const FormatInfo& f, Layout from, const std::byte* in, int64_t outputs, int64_t inputs,
                    std::byte* out) {
  if (f.plain()) return transpose(from, f.storage_bits / 8, in, outputs, inputs, out);
  const int64_t words = inputs * f.storage_bits / 32;
  const uint32_t flip =
      static_cast<uint32_t>(tiles_flip(f)) * (f.storage_bits == 8 ? 0x01010101u : 0x11111111u);  // every code
  const auto flipped = [flip](uint32_t word) { return word ^ flip; };
  const auto to_tile = [flip](uint32_t word) { return nibbles_to_tile(word ^ flip); };
  const auto to_row = [flip](uint32_t word) { return nibbles_to_row(word) ^ flip; };
  if (f.storage_bits == 8) {
    if (from == Layout::rows) return words_to_tiles(in, outputs, words, out, flipped);
    return words_to_rows(in, outputs, words, out, flipped);
  }
  if (f.storage_bits == 2) {
    if (from == Layout::rows) return words_to_tiles(in, outputs, words, out, transpose_codes_of_2);
    return words_to_rows(in, outputs, words, out, transpose_codes_of_2);
  }
  if (from == Layout::rows) return words_to_tiles(in, outputs, words, out, to_tile);
  words_to_rows(in, outputs, words, out, to_row);
}

}  // namespace

int64_t output_blocks(const WeightView& weight) { return ceil_div(weight.outputs, 16); }

WeightBytes block_bytes(const WeightView& weight, Layout layout, int64_t first_block, int64_t last_block) {
  const int64_t outputs = std::min(last_block * 16, weight.outputs) - first_block * 16;
  return weight_bytes(weight.format, layout, outputs, weight.inputs);
}

WeightView block_view(const WeightView& weight, int64_t first_block, int64_t last_block) {
  const WeightBytes before = first_block == 0 ? WeightBytes{} : block_bytes(weight, weight.layout, 0, first_block);
  const WeightBytes here = block_bytes(weight, weight.layout, first_block, last_block);
  WeightView view = weight;
  view.outputs = std::min(last_block * 16, weight.outputs) - first_block * 16;
  view.codes = weight.codes.subspan(before.codes, here.codes);
  view.scales = weight.scales.subspan(before.scales, here.scales);
  view.minima = weight.minima.subspan(before.minima, here.minima);
  return view;
}

void relayout(const WeightView& weight, int64_t first_block, int64_t last_block, const WeightParts& out) {
  const FormatInfo& f = info(weight.format);
  CHECK(0 <= first_block && first_block < last_block && last_block <= output_blocks(weight));
  const Layout to = weight.layout == Layout::rows ? Layout::tiles : Layout::rows;
  const WeightBytes total = block_bytes(weight, to, first_block, last_block);
  CHECK(static_cast<int64_t>(out.codes.size()) == total.codes &&
        static_cast<int64_t>(out.scales.size()) == total.scales &&
        static_cast<int64_t>(out.minima.size()) == total.minima);
  WeightBytes written;
  for (int64_t b = first_block; b < last_block; ++b) {
    const WeightView from = block_view(weight, b, b + 1);
    const WeightBytes bytes = block_bytes(weight, to, b, b + 1);
    relayout_codes(f, from.layout, from.codes.data(), from.outputs, from.inputs, out.codes.data() + written.codes);
    if (bytes.scales > 0)
      transpose(from.layout, 2, from.scales.data(), from.outputs, from.groups(), out.scales.data() + written.scales);
    if (bytes.minima > 0)
      transpose(from.layout, 2, from.minima.data(), from.outputs, from.groups(), out.minima.data() + written.minima);
    written.codes += bytes.codes;
    written.scales += bytes.scales;
    written.minima += bytes.minima;
  }
}

}  // namespace onw
