// From `rows` to `tiles` and back, a range of 16 outputs at a time, so that memory stays bounded. No code changes its
// value; padding outputs get code value 0 (index 0 of a codebook) and scale 0.
#pragma once

#include <cstdint>

#include "graph/weight_view.h"
#include "quant/quantise.h"

namespace onw {

// Blocks of 16 outputs that a weight has.
int64_t output_blocks(const WeightView& weight);

// Bytes of blocks [first, last) in `layout`: what `relayout` writes. The last block of `rows` may be short.
WeightBytes block_bytes(const WeightView& weight, Layout layout, int64_t first_block, int64_t last_block);

// Writes blocks [first, last) of `weight` in the other layout. `out` holds exactly these blocks (block_bytes).
void relayout(const WeightView& weight, int64_t first_block, int64_t last_block, const WeightParts& out);

// The part of a weight's bytes (in its own layout) that belongs to blocks [first, last).
WeightView block_view(const WeightView& weight, int64_t first_block, int64_t last_block);

}  // namespace onw
