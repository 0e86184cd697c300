#include "targets/openvino/chunk_masks.h"

#include <algorithm>

namespace onw::openvino {
namespace {

bool all_see_all(const RowSpan& span, const ChunkPlace& place, int64_t window) {
  return causal(span.first, window).end >= place.begin + place.length &&
         causal(span.first + span.rows - 1, window).begin <= place.begin;
}

}  // namespace

Result<ChunkMasks::Mask*> ChunkMasks::mask(const Key& key) {
  Mask& m = masks_[key];
  if (m.memory != nullptr) return &m;
  auto memory = memory_.allocate(std::get<2>(key) * std::get<4>(key) * 4);
  RETURN_IF_ERROR(memory);
  m.memory = std::move(*memory);
  return &m;
}

Result<const float*> ChunkMasks::of_chunk(const RowSpan& span, const ChunkPlace& place, int64_t window,
                                          int64_t block_rows) {
  if (all_see_all(span, place, window)) {
    const auto whole = mask({-1, 0, place.length, 0, block_rows});  // zeros as it comes
    RETURN_IF_ERROR(whole);
    return (*whole)->data();
  }
  const auto made = mask({static_cast<int64_t>(span.number), place.index, place.length, window, block_rows});
  RETURN_IF_ERROR(made);
  if ((*made)->step == step_) return (*made)->data();
  (*made)->step = step_;
  float* data = (*made)->data();
  std::fill_n(data, block_rows * place.length, kMasked);
  for (int64_t r = 0; r < block_rows; ++r) {
    const Visible seen = r < span.rows ? causal(span.first + r, window) : Visible{place.begin, place.begin + 1};
    const int64_t begin = std::clamp<int64_t>(seen.begin - place.begin, 0, place.length),
                  end = std::clamp<int64_t>(seen.end - place.begin, 0, place.length);
    std::fill(data + r * place.length + begin, data + r * place.length + std::max(begin, end), 0.0f);
  }
  return data;
}

Result<const float*> ChunkMasks::of_ring(const RowSpan& span, int64_t length, int64_t window, int64_t block_rows) {
  const auto made = mask({static_cast<int64_t>(span.number), -1, length, window, block_rows});
  RETURN_IF_ERROR(made);
  if ((*made)->step == step_) return (*made)->data();
  (*made)->step = step_;
  float* data = (*made)->data();
  std::fill_n(data, block_rows * length, kMasked);
  for (int64_t r = 0; r < block_rows; ++r) {
    const Visible seen = causal(span.first + std::min(r, span.rows - 1), window);
    for (int64_t p = seen.begin; p < seen.end; ++p) data[r * length + p % length] = 0;
  }
  return data;
}

SeeingRows ChunkMasks::seeing(const RowSpan& span, const ChunkPlace& place, int64_t window) {
  const auto sees = [&](int64_t r) {
    const Visible seen = causal(span.first + r, window);
    return seen.begin < place.begin + place.length && seen.end > place.begin;
  };
  SeeingRows rows{0, span.rows};
  while (rows.first < rows.last && !sees(rows.first)) ++rows.first;
  while (rows.last > rows.first && !sees(rows.last - 1)) --rows.last;
  return rows;
}

}  // namespace onw::openvino
