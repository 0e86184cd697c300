// K and V of 256 positions of one layer and one KV head, as the attention kernels of every instruction set read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "graph/kv_format.h"

namespace onw {

constexpr int64_t kPagePositions = 256;  // also the blocks of the softmax, on absolute positions

// Offsets within a page, which is one run of bytes() bytes aligned to 64. Nothing need be initialised: what was not
// written is never part of a result. Position p of a page, element i of the head; d is the head size, dp the next
// multiple of 16.
//
//   int8  K  U8 [256/16][dp/4][16][4]  code + 128: 16 positions x 4 elements are a line for vpdpbusd, or a row of an
//   AMX
//                                      tile; a walk over elements is one run of memory
//         V  I8 [256/4][dp][4]         4 positions side by side, the operand of the weights
//         K scales F16 [256], V scales F16 [256]
//   f16   K  F16 [256/16][d][16]       V  F16 [256][dp]
//   f32   K  F32 [256/16][d][16]       V  F32 [256][dp]
struct KvLayout {
  KvFormat format = KvFormat::int8;
  int head_dim = 0;

  constexpr int64_t padded() const { return round_up(head_dim, 16); }
  constexpr int64_t element_bytes() const { return format == KvFormat::int8 ? 1 : format == KvFormat::f16 ? 2 : 4; }
  constexpr int64_t v_offset() const { return kPagePositions * padded() * element_bytes(); }
  constexpr int64_t k_scale_offset() const { return 2 * v_offset(); }
  constexpr int64_t v_scale_offset() const { return k_scale_offset() + 2 * kPagePositions; }
  constexpr int64_t bytes() const { return k_scale_offset() + (format == KvFormat::int8 ? 4 * kPagePositions : 0); }

  // Elements (not bytes) from the start of K and of V.
  constexpr int64_t k_at(int64_t p, int64_t i) const {
    if (format == KvFormat::int8) return ((p / 16 * (padded() / 4) + i / 4) * 16 + p % 16) * 4 + i % 4;
    return (p / 16 * head_dim + i) * 16 + p % 16;
  }
  constexpr int64_t v_at(int64_t p, int64_t i) const {
    if (format == KvFormat::int8) return (p / 4 * padded() + i) * 4 + p % 4;
    return p * padded() + i;
  }
};

// One position of a page in its stored format, elements in order: INT8 codes and F16 scales, F16 or F32. This is the
// canonical state of a position (targets/canonical_state.h); `elements` holds head_dim of them.
void load_position(const KvLayout& layout, const std::byte* page, int64_t position, std::byte* k, uint16_t* k_scale,
                   std::byte* v, uint16_t* v_scale);
void store_position(const KvLayout& layout, std::byte* page, int64_t position, const std::byte* k, uint16_t k_scale,
                    const std::byte* v, uint16_t v_scale);

}  // namespace onw
