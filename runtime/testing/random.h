// Reproducible numbers for property tests.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/philox.h"

namespace onw::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  double uniform() { return uniform_draw(seed_, 99, count_++); }
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  bool chance(double p) { return uniform() < p; }
  std::vector<int32_t> tokens(int64_t count, int32_t vocabulary) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(below(vocabulary)));
    return tokens;
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

}  // namespace onw::testing
