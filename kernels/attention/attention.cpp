#include "kernels/attention/attention.h"

#include <algorithm>
#include <array>

#include "base/result.h"
#include "kernels/attention/tables.h"

namespace onw {
namespace {

constexpr std::array kTable = {
#define KERNEL(name, needs) AttentionOpsRow{#name, needs, &name},
#include "kernels/attention/kernels.inc"
#undef KERNEL
};

}  // namespace

std::span<const AttentionOpsRow> attention_ops_table() { return kTable; }

const AttentionOps& attention_ops(Isa level) {
  const AttentionOps* best = kTable[0].ops;
  for (const AttentionOpsRow& row : kTable)
    if (runs_at(row.needs, level)) best = row.ops;
  return *best;
}

PageRange visible_blocks(std::span<const AttentionRow> rows) {
  PageRange range{std::numeric_limits<int64_t>::max(), 0};
  for (const AttentionRow& row : rows) {
    if (row.begin >= row.end) continue;
    range.begin = std::min(range.begin, row.begin / kPagePositions);
    range.end = std::max(range.end, ceil_div(row.end, kPagePositions));
  }
  return range.end == 0 ? PageRange{} : range;
}

size_t attention_scratch_bytes(const AttentionForm& form, int64_t rows) {
  size_t bytes = 0;
  place_attention_scratch(form, rows, nullptr, &bytes);
  return bytes;
}

size_t block_results_floats(const AttentionForm& form, int64_t rows, int64_t blocks) {
  return static_cast<size_t>(rows * blocks * result_stride(form.layout()));
}

AttentionScratch place_attention_scratch(const AttentionForm& form, int64_t rows, std::byte* memory, size_t* bytes) {
  CHECK(form.head_dim > 0 && rows >= 0);
  const int64_t padded = form.layout().padded();
  int64_t used = 0;
  const auto take = [&]<class T>(T*& part, int64_t count) {
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + used);
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
  };
  AttentionScratch s;
  take(s.codes, rows * padded);
  take(s.factor, rows);
  take(s.offset, rows);
  take(s.m, rows);
  take(s.l, rows);
  take(s.o, rows * padded);
  take(s.scores, kTileRows * kPagePositions);
  take(s.bytes, kTileRows * 2 * kPagePositions);
  take(s.scales, 2 * kPagePositions);
  take(s.block_o, kTileRows * padded);
  take(s.packed, kTileRows * padded);
  take(s.block_m, kTileRows);
  take(s.block_l, kTileRows);
  if (bytes != nullptr) *bytes = static_cast<size_t>(used);
  return s;
}

namespace {

template <class T>
void copy_position(const KvLayout& layout, const std::byte* page, int64_t p, std::byte* k, std::byte* v) {
  const T* k_from = reinterpret_cast<const T*>(page);
  const T* v_from = reinterpret_cast<const T*>(page + layout.v_offset());
  for (int i = 0; i < layout.head_dim; i++) {
    reinterpret_cast<T*>(k)[i] = k_from[layout.k_at(p, i)];
    reinterpret_cast<T*>(v)[i] = v_from[layout.v_at(p, i)];
  }
}

template <class T>
void place_position(const KvLayout& layout, std::byte* page, int64_t p, const std::byte* k, const std::byte* v) {
  T* k_to = reinterpret_cast<T*>(page);
  T* v_to = reinterpret_cast<T*>(page + layout.v_offset());
  for (int i = 0; i < layout.head_dim; i++) {
    k_to[layout.k_at(p, i)] = reinterpret_cast<const T*>(k)[i];
    v_to[layout.v_at(p, i)] = reinterpret_cast<const T*>(v)[i];
  }
}

constexpr uint8_t kSignBit = 0x80;  // code + 128 as an unsigned byte is the code with this bit turned

}  // namespace

void load_position(const KvLayout& layout, const std::byte* page, int64_t position, std::byte* k, uint16_t* k_scale,
                   std::byte* v, uint16_t* v_scale) {
  if (layout.format == KvFormat::f32) return copy_position<uint32_t>(layout, page, position, k, v);
  if (layout.format == KvFormat::f16) return copy_position<uint16_t>(layout, page, position, k, v);
  copy_position<uint8_t>(layout, page, position, k, v);
  for (int i = 0; i < layout.head_dim; i++) k[i] ^= std::byte{kSignBit};
  *k_scale = reinterpret_cast<const uint16_t*>(page + layout.k_scale_offset())[position];
  *v_scale = reinterpret_cast<const uint16_t*>(page + layout.v_scale_offset())[position];
}

void store_position(const KvLayout& layout, std::byte* page, int64_t position, const std::byte* k, uint16_t k_scale,
                    const std::byte* v, uint16_t v_scale) {
  if (layout.format == KvFormat::f32) return place_position<uint32_t>(layout, page, position, k, v);
  if (layout.format == KvFormat::f16) return place_position<uint16_t>(layout, page, position, k, v);
  place_position<uint8_t>(layout, page, position, k, v);
  for (int i = 0; i < layout.head_dim; i++) page[layout.k_at(position, i)] ^= std::byte{kSignBit};
  reinterpret_cast<uint16_t*>(page + layout.k_scale_offset())[position] = k_scale;
  reinterpret_cast<uint16_t*>(page + layout.v_scale_offset())[position] = v_scale;
}

}  // namespace onw
