// Attention over one chunk of a cache as a graph without weights: any layer of the same shape uses it. With the result
// come its maximum and sum, so that the host can merge chunks exactly.
#pragma once

#include "graph/kv_format.h"
#include "graph/program.h"

namespace onw::openvino {

struct AttentionShape {
  int64_t rows = 1;
  int64_t heads = 1, kv_heads = 1;
  int64_t head_dim = 0, value_dim = 0;
  int64_t length = 0;  // positions of the chunk
  double scale = 1, soft_cap = 0;
  KvFormat kv = KvFormat::f16;
  auto operator<=>(const AttentionShape&) const = default;
};

// What is not to be seen gets this instead of minus infinity, whose difference with itself is no number.
constexpr float kMasked = -65504.0f;  // -32752 on an NPU (passes/legalize_npu.h): a score beside it must not overflow

// Inputs: "q" f32[rows, heads, head_dim]; "k" [kv_heads, length, head_dim] and "v" [kv_heads, value_dim, length] in the
// cache's format, for INT8 "k_scale" and "v_scale" f16[kv_heads, 1, length]; "mask" f32[rows, length], 0 or kMasked.
// Outputs, for s = scale * q . k + mask: "m" = max s [heads, rows, 1], "l" = sum exp(s - m) [heads, rows, 1],
// "o" = sum exp(s - m) v / l [heads, rows, value_dim]. Scales stand outside the products.
Function attention_graph(const AttentionShape& shape);

// The shape of an attention node over its state; rows and length are left to the caller.
AttentionShape attention_shape(const Node& attention, const StateDecl& state, KvFormat kv);

}  // namespace onw::openvino
