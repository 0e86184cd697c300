#include <algorithm>
#include <functional>

#include "base/half.h"
#include "kernels/attention/scalar_block.h"
#include "kernels/attention/tables.h"

namespace onw {
namespace {

// The pages of a task, by absolute position.
struct Paged {
  KvLayout layout;
  const std::byte* const* pages;

  const std::byte* page(int64_t p) const { return pages[p / kPagePositions]; }
  template <class T>
  T read(int64_t p, int64_t offset, int64_t element) const {
    return reinterpret_cast<const T*>(page(p) + offset)[element];
  }
  template <class T>
  T k_element(int64_t p, int i) const {
    return read<T>(p, 0, layout.k_at(p % kPagePositions, i));
  }
  template <class T>
  T v_element(int64_t p, int i) const {
    return read<T>(p, layout.v_offset(), layout.v_at(p % kPagePositions, i));
  }

  int k_code(int64_t p, int i) const { return k_element<uint8_t>(p, i) - 128; }
  int v_code(int64_t p, int i) const { return v_element<int8_t>(p, i); }
  uint16_t k_scale(int64_t p) const { return read<uint16_t>(p, layout.k_scale_offset(), p % kPagePositions); }
  uint16_t v_scale(int64_t p) const { return read<uint16_t>(p, layout.v_scale_offset(), p % kPagePositions); }
  float k(int64_t p, int i) const {
    return layout.format == KvFormat::f16 ? half_to_float(k_element<uint16_t>(p, i)) : k_element<float>(p, i);
  }
  float v(int64_t p, int i) const {
    return layout.format == KvFormat::f16 ? half_to_float(v_element<uint16_t>(p, i)) : v_element<float>(p, i);
  }
};

// Calls use(block, state) for each block of `range` that the row sees.
template <class Use>
void for_blocks(const AttentionTask& task, const AttentionRow& row, PageRange range, const AttentionScratch& s,
                Use use) {
  if (row.begin >= row.end) return;
  const scalar::Query query = scalar::make_query(task.form, row.q, s.codes);
  const int64_t first = std::max(range.begin, row.begin / kPagePositions);
  const int64_t last = std::min(range.end, ceil_div(row.end, kPagePositions));
  for (int64_t b = first; b < last; b++) {
    scalar::SoftmaxState block{.o = s.block_o};
    const int64_t begin = std::max(row.begin, b * kPagePositions);
    const int64_t end = std::min(row.end, (b + 1) * kPagePositions);
    scalar::attend_block(task.form, query, Paged{task.form.layout(), task.pages}, begin, end, block);
    use(b, block);
  }
}

template <class T, class Convert>
void write_elements(const KvLayout& layout, std::byte* page, int64_t position, const float* k, const float* v,
                    Convert convert) {
  T* k_to = reinterpret_cast<T*>(page);
  T* v_to = reinterpret_cast<T*>(page + layout.v_offset());
  for (int i = 0; i < layout.head_dim; i++) {
    k_to[layout.k_at(position, i)] = convert(k[i]);
    v_to[layout.v_at(position, i)] = convert(v[i]);
  }
}

}  // namespace

void kv_write_generic(const KvLayout& layout, std::byte* page, int64_t position, const float* k, const float* v) {
  if (layout.format == KvFormat::f32) return write_elements<float>(layout, page, position, k, v, std::identity{});
  if (layout.format == KvFormat::f16) return write_elements<uint16_t>(layout, page, position, k, v, float_to_half);
  const size_t n = static_cast<size_t>(layout.head_dim);
  const scalar::KvScale k_scale = scalar::kv_scale(scalar::amax({k, n}));
  const scalar::KvScale v_scale = scalar::kv_scale(scalar::amax({v, n}));
  reinterpret_cast<uint16_t*>(page + layout.k_scale_offset())[position] = k_scale.half;
  reinterpret_cast<uint16_t*>(page + layout.v_scale_offset())[position] = v_scale.half;
  auto* k_to = reinterpret_cast<uint8_t*>(page);
  auto* v_to = reinterpret_cast<int8_t*>(page + layout.v_offset());
  for (int i = 0; i < layout.head_dim; i++) {
    k_to[layout.k_at(position, i)] = static_cast<uint8_t>(scalar::kv_code(k[i], k_scale) + 128);
    v_to[layout.v_at(position, i)] = scalar::kv_code(v[i], v_scale);
  }
}

void attend_generic(const AttentionTask& task, std::byte* scratch) {
  const AttentionScratch s = place_attention_scratch(task.form, 1, scratch, nullptr);
  const PageRange all = visible_blocks(task.rows);
  for (const AttentionRow& row : task.rows) {
    scalar::SoftmaxState running{.o = s.o};
    std::fill_n(s.o, task.form.head_dim, 0.0f);
    for_blocks(task, row, all, s, [&](int64_t, const scalar::SoftmaxState& block) {
      scalar::fold_block({block.m, block.l, block.o}, task.form.head_dim, running);
    });
    scalar::finish_row(row, task.form.head_dim, running, row.out);
  }
}

void attend_blocks_generic(const AttentionTask& task, PageRange all, PageRange range, float* results,
                           std::byte* scratch) {
  const AttentionScratch s = place_attention_scratch(task.form, 1, scratch, nullptr);
  const int64_t stride = result_stride(task.form.layout());
  for (size_t r = 0; r < task.rows.size(); r++)
    for_blocks(task, task.rows[r], range, s, [&](int64_t b, const scalar::SoftmaxState& block) {
      float* to = results + (static_cast<int64_t>(r) * (all.end - all.begin) + b - all.begin) * stride;
      to[0] = block.m;
      to[1] = block.l;
      std::copy_n(block.o, task.form.head_dim, to + kResultHeader);
    });
}

void fold_blocks_generic(const AttentionTask& task, PageRange all, const float* results, std::byte* scratch) {
  const AttentionScratch s = place_attention_scratch(task.form, 1, scratch, nullptr);
  const int64_t stride = result_stride(task.form.layout());
  for (size_t r = 0; r < task.rows.size(); r++) {
    const AttentionRow& row = task.rows[r];
    scalar::SoftmaxState running{.o = s.o};
    std::fill_n(s.o, task.form.head_dim, 0.0f);
    for (int64_t b = row.begin / kPagePositions; row.begin < row.end && b * kPagePositions < row.end; b++) {
      const float* from = results + (static_cast<int64_t>(r) * (all.end - all.begin) + b - all.begin) * stride;
      scalar::fold_block({from[0], from[1], from + kResultHeader}, task.form.head_dim, running);
    }
    scalar::finish_row(row, task.form.head_dim, running, row.out);
  }
}

const AttentionOps attention_ops_generic = {kv_write_generic, attend_generic, attend_blocks_generic,
                                            fold_blocks_generic};

}  // namespace onw
