#include "quant/error.h"

#include <vector>

#include "base/result.h"
#include "quant/unpack.h"

namespace onw {
namespace {

WeightError row_error(std::span<const float> wanted, std::span<const float> got) {
  WeightError e;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(wanted[i]) - got[i];
    e.error2 += d * d;
    e.norm2 += static_cast<double>(wanted[i]) * wanted[i];
  }
  return e;
}

}  // namespace

WeightError weight_error(std::span<const float> original, const WeightView& weight) {
  CHECK(static_cast<int64_t>(original.size()) == weight.outputs * weight.inputs);
  std::vector<float> row(weight.inputs);
  WeightError total;
  for (int64_t o = 0; o < weight.outputs; ++o) {
    dequantise_row(weight, o, row);
    total.add(row_error(original.subspan(o * weight.inputs, weight.inputs), row));
  }
  return total;
}

WeightError nf4_rounding_error(const WeightView& weight) {
  std::vector<float> wanted(weight.inputs), row(weight.inputs);
  WeightError total;
  for (int64_t o = 0; o < weight.outputs; ++o) {
    dequantise_row_true_nf4(weight, o, wanted);
    dequantise_row(weight, o, row);
    total.add(row_error(wanted, row));
  }
  return total;
}

}  // namespace onw
