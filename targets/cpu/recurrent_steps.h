// The steps that go through convolution and delta states.
#pragma once

#include <vector>

#include "targets/cpu/steps.h"

namespace onw::cpu {

struct ConvStep {
  Slot x, y;
  int state = 0;  // its place among the recurrent ones
  int64_t kernel = 0;
  std::vector<float> weight;  // [kernel, channels]
  std::span<const float> bias;
};
StepPtr make_conv_update(std::string label, ConvStep step);

struct DeltaStep {
  Slot q, k, v, g, beta, y;
  int state = 0;
  bool tiled = false;
};
StepPtr make_gated_delta(std::string label, const DeltaStep& step);

}  // namespace onw::cpu
