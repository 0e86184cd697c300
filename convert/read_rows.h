// Rows of a published tensor as ours: the part that is meant, RoPE rows in halves, folds and powers of two applied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/model_source.h"
#include "graph/program.h"
#include "quant/quantise.h"

namespace onw {

// Fold::minus_exp of one number, the same on every machine.
float minus_exp(float x);

class RowReader {
 public:
  // All that is given outlives the reader; `tensor` is what tensor_of gave for `weight`. Our row r is multiplied by
  // 2^exponents[r], and column c by 2^input_exponents[c]; none: by 1.
  RowReader(const SourceTensor& tensor, const WeightDecl& weight, const WeightSource& from,
            std::span<const int8_t> exponents = {}, std::span<const int8_t> input_exponents = {});

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }

  // Rows [first, first + count) as FP32 [count, inputs], folded. Errors: numerics where a value is not finite, naming
  // tensor and row.
  Result<void> read(int64_t first, int64_t count, float* out) const;

  // The same rows with the codes that the file has, where its blocks mean the same in `format`; parts are in `rows`
  // layout. Only for taken_over_format(), and without exponents of columns, whose scales rows share. Errors: numerics
  // where a scale times its power of two leaves F16.
  Result<void> take_over(WeightFormat format, int64_t first, int64_t count, const WeightParts& out) const;

 private:
  // The published row that is our row `row`.
  int64_t source_row(int64_t row) const;
  std::span<const std::byte> row_bytes(int64_t row) const;
  Result<void> scale_halves(std::span<uint16_t> halves, int64_t row) const;
  // A row of MXFP4 in two tensors: its codes, and the exponent of each group's scale.
  void read_fp4(int64_t row, std::span<int8_t> codes, std::span<int> exponents) const;
  Result<void> take_over_affine(WeightFormat format, int64_t first, int64_t count, const WeightParts& out) const;
  void read_transposed(int64_t first, int64_t count, float* out) const;
  Result<void> check_scales(std::span<const uint16_t> scales, int64_t first, int64_t groups) const;
  Result<void> check_fp4_scales(int64_t first, int64_t count, int largest, std::string_view remedy) const;
  Result<void> take_over_fp4(int64_t first, int64_t count, const WeightParts& out) const;
  Result<void> check_finite(std::span<const float> values, int64_t first) const;

  const SourceTensor& tensor_;
  std::span<const int8_t> exponents_, input_exponents_;
  Fold fold_;
  bool transposed_ = false;
  int64_t begin_ = 0, step_ = 1, head_dim_ = 0, outputs_ = 0, inputs_ = 0;
};

// The format whose codes are those of the blocks, if there is one: Q4_0 q4g32, Q4_1 and Q4_K q4g32m, Q5_1 and Q5_K
// q5g32m, Q5_0 and Q8_0 q8g32, IQ4_NL iq4g32, MXFP4 mxfp4 (a scale below F16's 2^-24 becomes 0); Q1_0, TQ1_0, TQ2_0,
// PQ2_0 and PTQ1_0 u2g128, Q2_0 q4g64; affine codes u2g128 or q4g32m. Scales are exact too, but for Q4_K and Q5_K,
// whose products of two scales are rounded to F16, and affine scales that are no F16 numbers.
std::optional<WeightFormat> taken_over_format(BlockType type);

}  // namespace onw
