// Attention over chunks, folded into one: exact, whatever the chunks.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "kernels/scalar.h"

namespace onw::openvino {

// Of `rows` rows and `heads` heads; parts come as [heads, part_rows, ...], of which the first `rows` count.
class ChunkMerge {
 public:
  void begin(int64_t heads, int64_t rows, int64_t value_dim) {
    heads_ = heads, rows_ = rows, value_dim_ = value_dim;
    const auto n = static_cast<size_t>(heads * rows);
    m_.assign(n, -std::numeric_limits<float>::infinity());
    l_.assign(n, 0);
    o_.resize(n * static_cast<size_t>(value_dim));
  }

  // Rows [first, last) alone: the others see nothing of the chunk, and what stands there need not be numbers.
  void fold(int64_t first, int64_t last, int64_t part_rows, const float* m, const float* l, const float* o) {
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t r = first; r < last; ++r) {
        const int64_t from = h * part_rows + r;
        fold_one(static_cast<size_t>(h * rows_ + r), m[from], l[from], o + from * value_dim_);
      }
  }

  // y [rows, heads, value_dim], rows `stride` apart. `sinks`: one a head, or none.
  void finish(std::span<const float> sinks, float* y, int64_t stride) const {
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t r = 0; r < rows_; ++r) {
        const auto i = static_cast<size_t>(h * rows_ + r);
        float l = l_[i], factor = 1;
        if (!sinks.empty()) {
          const float sink = sinks[static_cast<size_t>(h)], most = std::max(m_[i], sink);
          factor = scalar::exp(m_[i] - most);
          l = l * factor + scalar::exp(sink - most);
        }
        const float* o = o_.data() + i * static_cast<size_t>(value_dim_);
        float* to = y + r * stride + h * value_dim_;
        for (int64_t e = 0; e < value_dim_; ++e) to[e] = o[e] * factor / l;
      }
  }

 private:
  void fold_one(size_t i, float m, float l, const float* o) {
    float* mine = o_.data() + i * static_cast<size_t>(value_dim_);
    if (l_[i] == 0) {  // the first
      m_[i] = m, l_[i] = l;
      for (int64_t e = 0; e < value_dim_; ++e) mine[e] = o[e] * l;
      return;
    }
    const float most = std::max(m_[i], m), a = scalar::exp(m_[i] - most), b = scalar::exp(m - most);
    m_[i] = most;
    l_[i] = l_[i] * a + l * b;
    for (int64_t e = 0; e < value_dim_; ++e) mine[e] = mine[e] * a + o[e] * (l * b);
  }

  int64_t heads_ = 0, rows_ = 0, value_dim_ = 0;
  std::vector<float> m_, l_, o_;
};

}  // namespace onw::openvino
