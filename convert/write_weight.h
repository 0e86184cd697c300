// One weight from its published tensor into the weights file, a slab of rows at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "convert/convert.h"
#include "convert/read_rows.h"
#include "convert/weight_rules.h"
#include "store/weight_file_writer.h"

namespace onw {

struct WeightJob {
  const WeightDecl* weight = nullptr;
  SourceTensor tensor;
  const WeightSource* from = nullptr;
  FormatChoice choice;
  std::span<const float> importance = {};  // of its inputs, or empty (quant/quantise.h)
};

// Appends the whole weight, altered as the rules say, as number `index` of the writer's unit. `after_slab` gets the
// bytes written; false cancels. Errors: numerics, no_space, io, cancelled.
Result<TensorReport> write_weight(const WeightJob& job, const Alteration& alteration, size_t index,
                                  WeightFileWriter& out, const std::function<bool(int64_t bytes)>& after_slab);

}  // namespace onw
