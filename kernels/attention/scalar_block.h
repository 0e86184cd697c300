// The arithmetic of attention.h for one row, written once over any storage: the reference reads plain arrays, the
// generic kernel pages. Slow and obvious.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "kernels/attention/attention.h"
#include "kernels/scalar.h"

namespace onw::scalar {

// A row's query as the block arithmetic wants it.
struct Query {
  const float* q = nullptr;       // F16, F32 cache
  const int8_t* codes = nullptr;  // INT8 cache
  float factor = 0;               // INT8: q_scale * scale; else scale
};

// One block's softmax, or the running fold of several.
struct SoftmaxState {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  float* o = nullptr;  // [head_dim]
};
struct BlockResult {
  float m;
  float l;
  const float* o;
};

inline void fold_block(const BlockResult& block, int head_dim, SoftmaxState& running) {
  const float n = block.m > running.m ? block.m : running.m;
  const float a = exp(running.m - n);
  const float b = exp(block.m - n);
  running.l = std::fma(block.l, b, running.l * a);
  for (int i = 0; i < head_dim; i++) running.o[i] = std::fma(block.o[i], b, running.o[i] * a);
  running.m = n;
}

// The sink and the division; `running.o` may be `out`.
inline void finish_row(const AttentionRow& row, int head_dim, const SoftmaxState& running, float* out) {
  float a = 1, l = running.l;
  if (row.sink != kNoSink) {
    const float n = row.sink > running.m ? row.sink : running.m;
    a = exp(running.m - n);
    l = std::fma(1.0f, exp(row.sink - n), running.l * a);
  }
  for (int i = 0; i < head_dim; i++) out[i] = row.begin < row.end ? running.o[i] * a / l : 0.0f;
}

// p[j] * v for the weights of one block. Kv: v_code(position, i), v(position, i), absolute positions; `weights` as in
// attention.h (w for INT8, p else), for the positions begin..end - 1 of one block.
template <class Kv>
void weighted_sum(const AttentionForm& form, const Kv& kv, int64_t begin, int64_t end, const float* weights, float* o) {
  const int64_t n = end - begin;
  if (form.kv != KvFormat::int8) {
    for (int i = 0; i < form.head_dim; i++) {
      float sum = 0;
      for (int64_t j = 0; j < n; j++) sum = std::fma(weights[j], kv.v(begin + j, i), sum);
      o[i] = sum;
    }
    return;
  }
  const float largest = amax({weights, static_cast<size_t>(n)});
  const bool usable = largest > 0 && largest < std::numeric_limits<float>::infinity();
  const float inv = usable ? 65535.0f / largest : 0.0f;
  for (int i = 0; i < form.head_dim; i++) {
    int32_t sum = 0;  // at most 256 * 65535 * 127 < 2^31
    for (int64_t j = 0; usable && j < n; j++) sum += round_half_even(weights[j] * inv) * kv.v_code(begin + j, i);
    o[i] = static_cast<float>(sum) * (usable ? largest / 65535.0f : largest);
  }
}

// The positions begin..end - 1 (at least one, all of one block).
template <class Kv>
void attend_block(const AttentionForm& form, const Query& query, const Kv& kv, int64_t begin, int64_t end,
                  SoftmaxState& block) {
  float s[kPagePositions];
  block.m = -std::numeric_limits<float>::infinity();
  for (int64_t j = begin; j < end; j++) {
    float score = 0;
    if (form.kv == KvFormat::int8) {
      int32_t dot = 0;
      for (int i = 0; i < form.head_dim; i++) dot += query.codes[i] * kv.k_code(j, i);
      score = static_cast<float>(dot) * (query.factor * half_to_float(kv.k_scale(j)));
    } else {
      for (int i = 0; i < form.head_dim; i++) score = std::fma(query.q[i], kv.k(j, i), score);
      score = score * query.factor;
    }
    if (form.soft_cap > 0) score = soft_cap(score, form.soft_cap);
    s[j - begin] = score;
    block.m = score > block.m ? score : block.m;
  }
  float partial[16] = {};
  for (int64_t j = begin; j < end; j++) {
    const float p = exp(s[j - begin] - block.m);
    partial[j % 16] += p;
    s[j - begin] = form.kv == KvFormat::int8 ? p * half_to_float(kv.v_scale(j)) : p;
  }
  block.l = fold(partial);
  weighted_sum(form, kv, begin, end, s, block.o);
}

// `codes` [head_dim] is filled for an INT8 cache.
inline Query make_query(const AttentionForm& form, const float* q, int8_t* codes) {
  if (form.kv != KvFormat::int8) return {q, nullptr, form.scale};
  const float scale = quantise({q, static_cast<size_t>(form.head_dim)}, codes);
  return {nullptr, codes, scale * form.scale};
}

}  // namespace onw::scalar
