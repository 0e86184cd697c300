// What tests of graphs need that are run with an NPU's arithmetic and without: drawn inputs, and a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/half.h"
#include "targets/reference/interpreter.h"

namespace onw::openvino {

// Of a normal distribution around 0, rounded to what `dtype` holds.
inline reference::Tensor drawn(DType dtype, Shape shape, float sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, sigma);
  reference::Tensor t = reference::make_tensor({dtype, std::move(shape), 0}, 0);
  for (float& x : t.f) {
    x = draw(random);
    if (dtype == DType::i4) x = std::clamp(std::nearbyint(x), -8.0f, 7.0f);
    if (dtype == DType::i8) x = std::clamp(std::nearbyint(x), -127.0f, 127.0f);
    if (dtype == DType::f16) x = half_to_float(float_to_half(x));
  }
  return t;
}

// The outputs of a function without weights; `npu`: by an NPU's rules (targets/reference/npu.h).
inline Result<reference::Inputs> run_graph(const Function& f, reference::Inputs inputs, bool npu) {
  const Program program;
  const WeightSet weights;
  return reference::run_function(f, std::move(inputs), {.program = program, .weights = weights, .npu = npu},
                                 CancelToken(), false);
}

}  // namespace onw::openvino
