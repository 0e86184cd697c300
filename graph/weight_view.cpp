#include "graph/weight_view.h"

#include "base/checked.h"

namespace onw {

WeightView WeightView::expert(int64_t e) const {
  WeightView one = *this;
  one.experts = one.expert_stride = 0;
  for (const auto part : {&WeightView::codes, &WeightView::scales, &WeightView::minima})
    if (!(one.*part).empty()) one.*part = {(one.*part).data() + e * expert_stride, (one.*part).size()};
  return one;
}

int64_t WeightView::stored_bytes() const {
  return static_cast<int64_t>(codes.size() + scales.size() + minima.size()) * (experts > 0 ? experts : 1);
}

WeightBytes weight_bytes(WeightFormat format, Layout layout, int64_t outputs, int64_t inputs) {
  const FormatInfo& f = info(format);
  const int64_t rows = layout == Layout::tiles ? round_up(outputs, 16) : outputs;
  WeightBytes bytes;
  bytes.codes = rows * inputs * f.storage_bits / 8;
  if (f.plain()) return bytes;
  const int64_t groups = f.group == 0 ? 1 : inputs / f.group;
  bytes.scales = rows * groups * 2;
  if (f.minimum) bytes.minima = rows * groups * 2;
  return bytes;
}

}  // namespace onw
