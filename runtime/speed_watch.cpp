#include "runtime/speed_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace onw {

std::string describe(const StepSeconds& s, std::string_view of) {
  const auto speed = [](double seconds) {
    const double n = 1 / std::max(seconds, 1e-9);
    return n < 10 ? fmt::format("{:.1f}", n) : fmt::format("{:.0f}", n);
  };
  return fmt::format("{} tokens{} a second with this model, the CPU {}", speed(s.device), of, speed(s.standby));
}

bool far_slower(const StepSeconds& s, const TrialRules& rules) {
  return s.device > kFarSlower * s.standby && s.device > rules.quick_seconds;
}

SpeedTrial::Finding SpeedTrial::begin(const std::optional<StepSeconds>& known, bool insisted) {
  device_.clear();
  trial_steps_ = 0;
  known_ = slow_ = false;
  return known ? settle(*known, insisted) : Finding::none;
}

void SpeedTrial::add(bool device, double seconds) {
  std::vector<double>& to = device ? device_ : standby_;
  if (to.size() < static_cast<size_t>(rules_.warm_up + rules_.timed)) to.push_back(seconds);
}

void SpeedTrial::computed(bool device) {
  if (!device && trial_steps_ > 0) --trial_steps_;
}

SpeedTrial::Finding SpeedTrial::look(const Upkeep& upkeep, bool insisted) {
  if (known_) return Finding::none;
  if (slow_) {
    if (upkeep.more_to_come) return Finding::none;
    if (upkeep.improvements == improvements_) return settle(seconds(), insisted);
    slow_ = false;
    device_.clear();
    return Finding::none;
  }
  const auto device = typical(device_);
  if (!device || trial_steps_ > 0 || *device <= rules_.quick_seconds) return Finding::none;
  if (!typical(standby_)) {
    if (insisted || tried_standby_) {  // who insists on the device gets no others
      known_ = true;
      return Finding::never_compared;
    }
    tried_standby_ = true;
    trial_steps_ = rules_.warm_up + rules_.timed;
    return Finding::none;
  }
  if (!far_slower(seconds(), rules_) || !upkeep.more_to_come) return settle(seconds(), insisted);
  if (insisted) {  // and is judged with all of its graphs
    device_.clear();
    return Finding::none;
  }
  slow_ = true;
  improvements_ = upkeep.improvements;
  return Finding::rests;
}

SpeedTrial::Finding SpeedTrial::settle(const StepSeconds& s, bool insisted) {
  known_ = true;
  slow_ = far_slower(s, rules_);
  const Finding found = slow_ ? Finding::not_worth_it : Finding::worth_it;
  if (insisted) slow_ = false;
  return found;
}

StepSeconds SpeedTrial::seconds() const {
  return {.device = typical(device_).value_or(0), .standby = typical(standby_).value_or(0)};
}

std::optional<double> SpeedTrial::typical(const std::vector<double>& seconds) const {
  if (seconds.size() < static_cast<size_t>(rules_.warm_up + rules_.timed)) return std::nullopt;
  std::vector<double> timed(seconds.begin() + rules_.warm_up, seconds.end());
  const auto middle = timed.begin() + rules_.timed / 2;
  std::ranges::nth_element(timed, middle);
  return *middle;
}

}  // namespace onw
