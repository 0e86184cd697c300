// The step of a plan that turns rows into a rotated basis.
#pragma once

#include <span>
#include <string>

#include "targets/cpu/steps.h"

namespace onw::cpu {

struct HadamardStep {
  Slot x, y;
  std::span<const float> signs;  // one an element of a row
  int64_t block = 0;
  bool inverse = false;
};
StepPtr make_hadamard(std::string label, const HadamardStep& step);

}  // namespace onw::cpu
