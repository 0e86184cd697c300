// Weights in the layout `rows`: two blocks at a time become tiles in a buffer of the thread, then the kernel for tiles
// runs on them. Rearranging costs some three instructions per 32 codes, and memory is read once, in order: what an
// NPU's folder and its experts need, without a second set of kernels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/result.h"
#include "kernels/matmul/kernels.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepare.h"
#include "kernels/matmul/relay.h"
#include "quant/codebook.h"

namespace onw::matmul_kernels {
namespace {

constexpr int64_t kBlocks = 2;  // at a time

uint32_t in_tile_order(uint32_t v) {
  v = (v & 0xff0000ffu) | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u);
  return (v & 0xf00ff00fu) | (v & 0x00f000f0u) << 4 | (v >> 4 & 0x00f000f0u);
}

// A square of 2-bit codes, transposed.
uint32_t twos_in_tile_order(uint32_t v) {
  uint32_t moved = (v ^ v >> 12) & 0x0000f0f0u;
  v ^= moved ^ moved << 12;
  moved = (v ^ v >> 6) & 0x00cc00ccu;
  return v ^ moved ^ moved << 6;
}

// [rows][count] of 2 bytes to [count][16]; missing rows repeat the last one.
void relay_halves(const uint16_t* from, int64_t count, int64_t rows, uint16_t* to) {
  for (int64_t o = 0; o < 16; ++o) {
    const uint16_t* row = from + std::min(o, rows - 1) * count;
    for (int64_t i = 0; i < count; ++i) to[i * 16 + o] = row[i];
  }
}

RelayFunction relay_for(Isa isa) {
  if (runs_at(Isa::avx512vnni, isa)) return relay_avx512vnni;
  if (runs_at(Isa::avx2, isa)) return relay_avx2;
  return relay_generic;
}

// Memory of the calling thread, aligned to 64 bytes; grows, and stays.
std::span<std::byte> scratch(int64_t bytes) {
  thread_local std::vector<std::byte> memory;
  if (std::ssize(memory) < bytes + 64) memory.resize(bytes + 64);
  const auto misaligned = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  return std::span(memory).subspan(misaligned == 0 ? 0 : 64 - misaligned, bytes);
}

// The codes, scales or minima of one block of `rows` outputs, whose bytes start at `from`.
struct Part {
  std::span<const std::byte> from;
  std::span<std::byte> to;
  int64_t rows;
};

void relay_halves(const Part& p) {
  relay_halves(reinterpret_cast<const uint16_t*>(p.from.data()), std::ssize(p.from) / 2 / p.rows, p.rows,
               reinterpret_cast<uint16_t*>(p.to.data()));
}

void relay_codes(const Part& p, const FormatInfo& f, Isa isa) {
  if (f.plain() && f.storage_bits == 16) return relay_halves(p);
  const int code_bits = f.plain() ? 8 : f.storage_bits;
  const auto flip = static_cast<uint8_t>(f.plain() ? 0 : code_bits == 4 ? tiles_flip(f) * 17 : tiles_flip(f));
  relay_for(isa)({reinterpret_cast<const uint8_t*>(p.from.data()), std::ssize(p.from) / p.rows, p.rows, code_bits, flip,
                  reinterpret_cast<uint8_t*>(p.to.data())});
}

// Blocks [first, first + kBlocks) of `weight`, or what there is of them, as tiles in scratch memory.
WeightView as_tiles(const WeightView& weight, int64_t first, Isa isa) {
  const int64_t outputs = std::min(weight.outputs - first * 16, kBlocks * 16);
  const WeightBytes row = weight_bytes(weight.format, Layout::rows, 1, weight.inputs);
  const WeightBytes block = weight_bytes(weight.format, Layout::tiles, 16, weight.inputs);
  WeightView tiles{weight.format, Layout::tiles, outputs, weight.inputs};
  const int64_t blocks = (outputs + 15) / 16;
  const auto memory = scratch(block.total() * blocks);
  const auto codes = memory.subspan(0, block.codes * blocks);
  const auto scales = memory.subspan(codes.size(), block.scales * blocks);
  const auto minima = memory.subspan(codes.size() + scales.size(), block.minima * blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t rows = std::min<int64_t>(outputs - b * 16, 16);
    const auto part = [&](std::span<const std::byte> all, int64_t row_bytes, std::span<std::byte> to, int64_t bytes) {
      return Part{all.subspan((first + b) * 16 * row_bytes, rows * row_bytes), to.subspan(b * bytes, bytes), rows};
    };
    relay_codes(part(weight.codes, row.codes, codes, block.codes), info(weight.format), isa);
    if (row.scales > 0) relay_halves(part(weight.scales, row.scales, scales, block.scales));
    if (row.minima > 0) relay_halves(part(weight.minima, row.minima, minima, block.minima));
  }
  tiles.codes = codes;
  tiles.scales = scales;
  tiles.minima = minima;
  return tiles;
}

MatmulOutput from_output(MatmulOutput out, int64_t first) {
  out.y += first;
  if (out.bias != nullptr) out.bias += first;
  if (out.residual != nullptr) out.residual += first;
  return out;
}

template <typename Rows>
void run(const Rows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa) {
  const WeightBytes need = weight_bytes(weight.format, weight.layout, weight.outputs, weight.inputs);
  CHECK(std::ssize(weight.codes) == need.codes && std::ssize(weight.scales) == need.scales &&
        std::ssize(weight.minima) == need.minima);
  CHECK(0 <= blocks.first && blocks.last <= (weight.outputs + 15) / 16);
  for (int64_t b = blocks.first; b < blocks.last; b += kBlocks) {
    const WeightView tiles = as_tiles(weight, b, isa);
    const Call call = prepare(x, tiles, {0, std::min(kBlocks, blocks.last - b)}, from_output(out, b * 16));
    select_kernel(isa, call.kind, call.rows).kernel(call);
  }
}

}  // namespace

void relay_rest(const Relay& r, int64_t at) {
  for (int64_t word = at; word < r.row_bytes; word += 4)
    for (int64_t i = 0; i < 16; ++i) {
      uint32_t v;
      std::memcpy(&v, r.from + std::min(i, r.rows - 1) * r.row_bytes + word, 4);
      v = (r.code_bits == 4 ? in_tile_order(v) : r.code_bits == 2 ? twos_in_tile_order(v) : v) ^ r.flip * 0x01010101u;
      std::memcpy(r.to + (word - at) * 16 + i * 4, &v, 4);
    }
}

void relay_generic(const Relay& r) { relay_rest(r, 0); }

void matmul_rows(const QuantizedRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out,
                 Isa isa) {
  run(x, weight, blocks, out, isa);
}

void matmul_rows(const FloatRows& x, const WeightView& weight, BlockRange blocks, const MatmulOutput& out, Isa isa) {
  run(x, weight, blocks, out, isa);
}

}  // namespace onw::matmul_kernels
