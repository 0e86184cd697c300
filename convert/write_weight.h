// One weight from its published tensor into the weights file, a slab of rows at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/convert.h"
#include "convert/read_rows.h"
#include "convert/weight_rules.h"
#include "quant/error.h"
#include "store/weight_file_writer.h"

namespace onw {

struct WeightJob {
  const WeightDecl* weight = nullptr;
  SourceTensor tensor;
  const WeightSource* from = nullptr;
  FormatChoice choice;
  std::span<const float> importance = {};  // of its inputs, or empty (quant/quantise.h)
};

// Rows of a weight in the chosen format and layout, with their error.
struct StoredRows {
  std::vector<std::byte> codes, scales, minima;
  WeightError error, nf4;
  int64_t raised_scales = 0;

  int64_t bytes() const { return static_cast<int64_t>(codes.size() + scales.size() + minima.size()); }
};

// Rows [first, first + count), `first` a multiple of 16. Errors: numerics, without the weight's name.
Result<StoredRows> store_rows(const WeightJob& job, const RowReader& reader, int64_t first, int64_t count);

// What became of a weight, the sums over all of its rows.
TensorReport report_of(const WeightJob& job, const StoredRows& sums, std::string altered);

// Appends the whole weight, altered as the rules say, as number `index` of the writer's unit. `after_slab` gets the
// bytes written; false cancels. Errors: numerics, no_space, io, cancelled.
Result<TensorReport> write_weight(const WeightJob& job, const Alteration& alteration, size_t index,
                                  WeightFileWriter& out, const std::function<bool(int64_t bytes)>& after_slab);

}  // namespace onw
