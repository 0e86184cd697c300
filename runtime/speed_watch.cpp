#include "runtime/speed_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace onw {

std::string describe(const StepSeconds& s) {
  const auto speed = [](double seconds) {
    const double n = 1 / std::max(seconds, 1e-9);
    return n < 10 ? fmt::format("{:.1f}", n) : fmt::format("{:.0f}", n);
  };
  return fmt::format("{} tokens a second with this model, the CPU {}", speed(s.device), speed(s.standby));
}

void StepTimes::add(double seconds) {
  if (seconds_.size() < kWarmUp + kTimed) seconds_.push_back(seconds);
}

std::optional<double> StepTimes::typical() const {
  if (seconds_.size() < kWarmUp + kTimed) return std::nullopt;
  std::vector<double> timed(seconds_.begin() + kWarmUp, seconds_.end());
  const auto middle = timed.begin() + kTimed / 2;
  std::ranges::nth_element(timed, middle);
  return *middle;
}

}  // namespace onw
