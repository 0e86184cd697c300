// Attention over plain arrays: what the reference target calls, and what the tests hold every kernel against.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace onw::scalar {

// K and V [positions][head_dim] of one KV head from absolute position `first` on: INT8 codes, F16 or F32 as the form
// says; scales F16 [positions], for INT8 alone.
struct PlainKv {
  int64_t first = 0;
  const void* k = nullptr;
  const void* v = nullptr;
  const uint16_t* k_scale = nullptr;
  const uint16_t* v_scale = nullptr;
};

// One row, as attention.h defines it. row.begin >= kv.first.
void attention(const AttentionForm& form, const AttentionRow& row, const PlainKv& kv);

}  // namespace onw::scalar
