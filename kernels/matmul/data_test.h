// Weights and activations for the tests of matmul, every buffer ending at a guard page.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string_view>

#include "base/guarded_memory.h"
#include "graph/weight_view.h"
#include "kernels/matmul/matmul.h"

namespace onw::test {

// What the numbers look like.
enum class Data {
  random,      // codes over their whole range, scales of ordinary size and both signs
  saturating,  // the largest codes of one sign everywhere: sums at their extremes
  lowest,      // every weight code the lowest (all -8), activations +-127
  tiny,        // scales at zero and in the subnormal range
  huge,        // scales up to the largest: results overflow
};
constexpr Data kAllData[] = {Data::random, Data::saturating, Data::lowest, Data::tiny, Data::huge};
std::string_view name(Data data);

struct Shape {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t rows = 0;
  int32_t x_group = 128;
};

class TestWeight {
 public:
  TestWeight(WeightFormat format, const Shape& shape, Data data, uint32_t seed);
  WeightView view() const;

 private:
  WeightFormat format_;
  Shape shape_;
  GuardedMemory codes_, scales_, minima_;
};

// Padding rows hold the worst: NaN scales and codes of -128.
class TestRows {
 public:
  TestRows(const Shape& shape, Data data, uint32_t seed);
  const QuantizedRows& rows() const { return rows_; }

 private:
  GuardedMemory codes_, scales_, sums_;
  QuantizedRows rows_;
};

// FP32 rows with a stride of inputs + 3.
class TestFloatRows {
 public:
  TestFloatRows(const Shape& shape, uint32_t seed);
  FloatRows rows() const;

 private:
  Shape shape_;
  GuardedMemory data_;
};

}  // namespace onw::test
