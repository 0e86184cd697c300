// Softmax attention of rows over a paged cache; the arithmetic of docs/arithmetic.md, with equal bits on every
// instruction set, for every number of rows, and for every split over threads.
//
// For a row with query q and the positions it sees, block by block of 256 absolute positions:
//   s_j = float(q_codes . k_codes_j) * ((q_scale * scale) * k_scale_j)             INT8
//   s_j = (q . k_j) * scale, by fma, index ascending                              F16, F32
//   s_j = soft_cap(s_j) where there is one
//   m = max s_j;  p_j = exp(s_j - m);  l = sum p_j by j mod 16, folded 8-4-2-1
//   INT8: w_j = p_j * v_scale_j, W = max w_j, c_j = round-half-even(w_j * (65535 / W)), an exact sum over c_j *
//   v_codes_j;
//         o = float(sum) * (W / 65535)
//   F16, F32: o = sum p_j * v_j by fma, j ascending from 0
// Blocks are folded in ascending order into (M, L, O), which begins as (-inf, 0, 0):
//   N = max(M, m);  a = exp(M - N), b = exp(m - N);  L = fma(l, b, L * a);  O = fma(o, b, O * a);  M = N
// A sink is folded last, with m = sink, l = 1, o = 0 (O = O * a). The result is O / L; 0 for a row that sees nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/attention/kv_page.h"
#include "kernels/isa.h"

namespace onw {

struct AttentionForm {
  KvFormat kv = KvFormat::int8;
  int head_dim = 0;
  float scale = 1;
  float soft_cap = 0;  // 0: none

  KvLayout layout() const { return {kv, head_dim}; }
};

constexpr float kNoSink = -std::numeric_limits<float>::infinity();

// One query head of one token.
struct AttentionRow {
  const float* q = nullptr;  // [head_dim], after RoPE
  float* out = nullptr;      // [head_dim]
  int64_t begin = 0;         // sees the positions begin..end - 1
  int64_t end = 0;
  float sink = kNoSink;
};

struct Visible {
  int64_t begin;
  int64_t end;
};
// What the token at `position` sees: itself and all before it, or the last `window` of those (0: no window).
constexpr Visible causal(int64_t position, int64_t window) {
  return {window > 0 && position + 1 > window ? position + 1 - window : 0, position + 1};
}

// Rows that share one KV head: the query heads of its group, of one or of many tokens. All rows of a task pass over a
// page before the next one is read; from some 64 rows on more of them gain nothing (Xeon, 2026-11). pages[b] holds the
// positions 256 b to 256 b + 255; pages that no row sees may be null.
struct AttentionTask {
  AttentionForm form;
  std::span<const AttentionRow> rows;
  const std::byte* const* pages = nullptr;
};

// Blocks that some row of the task sees.
struct PageRange {
  int64_t begin = 0;
  int64_t end = 0;
};
PageRange visible_blocks(std::span<const AttentionRow> rows);

// Bytes, aligned to 64, that a call may use for `rows` rows; no call allocates.
size_t attention_scratch_bytes(const AttentionForm& form, int64_t rows);

// Floats that attend_blocks writes for `rows` rows and `blocks` blocks.
size_t block_results_floats(const AttentionForm& form, int64_t rows, int64_t blocks);

struct AttentionOps {
  // Writes k and v [head_dim] at `position` of a page (0..255), quantised as the layout says.
  void (*kv_write)(const KvLayout& layout, std::byte* page, int64_t position, const float* k, const float* v);
  // The whole task by one thread.
  void (*attend)(const AttentionTask& task, std::byte* scratch);
  // The same in pieces, where heads are few: results of the blocks range.begin..end - 1 of every row (any pieces, any
  // threads), laid out by `all` = visible_blocks(task.rows); then fold_blocks once all pieces are there.
  void (*attend_blocks)(const AttentionTask& task, PageRange all, PageRange range, float* results, std::byte* scratch);
  void (*fold_blocks)(const AttentionTask& task, PageRange all, const float* results, std::byte* scratch);
};

struct AttentionOpsRow {
  std::string_view name;
  Isa needs;
  const AttentionOps* ops;
};
std::span<const AttentionOpsRow> attention_ops_table();  // kernels/attention/kernels.inc, best last
const AttentionOps& attention_ops(Isa level);            // the best that runs at `level`

}  // namespace onw
