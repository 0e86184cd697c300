#include "graph/weight_view.h"

#include "base/checked.h"

namespace onw {

WeightBytes weight_bytes(WeightFormat format, Layout layout, int64_t outputs, int64_t inputs) {
  const FormatInfo& f = info(format);
  const int64_t rows = layout == Layout::tiles ? round_up(outputs, 16) : outputs;
  WeightBytes bytes;
  bytes.codes = rows * inputs * f.storage_bits / 8;
  if (f.plain()) return bytes;
  const int64_t groups = f.group == 0 ? 1 : inputs / f.group;
  bytes.scales = rows * groups * (f.scale == ScaleType::e8m0 ? 1 : 2);
  if (f.minimum) bytes.minima = rows * groups * 2;
  return bytes;
}

}  // namespace onw
