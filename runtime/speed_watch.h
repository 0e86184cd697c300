// Whether a device is worth having: what a step of one row takes on it, beside the same on the CPU.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace onw {

// Seconds for one row on either side, as they were measured.
struct StepSeconds {
  double device = 0, standby = 0;
  bool operator==(const StepSeconds&) const = default;
};

// A device that takes more than so many times as long as the CPU is not worth having unless somebody insists on it.
// Less than that is: an NPU draws a fraction of the power of the cores and leaves them to others, so that it may be
// slower and still be the better choice. Chosen, not measured: no NPU was at hand.
inline constexpr double kFarSlower = 3;
// And one that gives a hundred tokens a second is never too slow: nobody waits for it.
inline constexpr double kQuickSeconds = 0.01;

inline bool far_slower(const StepSeconds& s) { return s.device > kFarSlower * s.standby && s.device > kQuickSeconds; }

// For people: "3.1 tokens a second with this model, the CPU 41".
std::string describe(const StepSeconds& seconds);

// Steps of one row on one side: the median of the first few that follow some to warm up (weights are read for the first
// time, a graph is compared with another, the number of threads is tried).
class StepTimes {
 public:
  static constexpr int kWarmUp = 4, kTimed = 12;

  void add(double seconds);
  void clear() { seconds_.clear(); }
  std::optional<double> typical() const;  // none: not yet

 private:
  std::vector<double> seconds_;
};

// Where what was measured is kept from one run to the next.
struct KeptSpeeds {
  std::function<std::optional<StepSeconds>()> read = {};
  std::function<void(const StepSeconds&)> write = {};
};

}  // namespace onw
