// Whether a device is worth having: what its steps take, beside the same on the CPU. Two kinds of steps are timed: of
// one row, by which answers are drawn, and of many, by which prompts are read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "targets/rest.h"

namespace onw {

// Seconds for one row on either side, as they were measured.
struct StepSeconds {
  double device = 0, standby = 0;
  bool operator==(const StepSeconds&) const = default;
};

// What is known of both kinds.
struct Speeds {
  std::optional<StepSeconds> tokens = {}, prompts = {};
  bool operator==(const Speeds&) const = default;
};

// What is timed of one kind, and when it is never too slow.
struct TrialRules {
  int warm_up = 0, timed = 0;  // steps
  double quick_seconds = 0;    // for a row: nobody waits for who is faster than that
};
// Weights are read for the first time, a graph is compared with another, the number of threads is tried: so some steps
// go before those that are timed.
inline constexpr TrialRules kTokenTrial{.warm_up = 4, .timed = 12, .quick_seconds = 0.01};
inline constexpr TrialRules kPromptTrial{.warm_up = 1, .timed = 3, .quick_seconds = 0.001};
// A step of so many rows of one sequence is one of a prompt. Fewer would tell more of how full a graph's rows are.
inline constexpr int64_t kPromptRows = 128;

// A device that takes more than so many times as long as the CPU is not worth having unless somebody insists on it.
// Less than that is: an NPU draws a fraction of the power of the cores and leaves them to others, so that it may be
// slower and still be the better choice. Chosen, not measured: no NPU was at hand.
inline constexpr double kFarSlower = 3;
bool far_slower(const StepSeconds& seconds, const TrialRules& rules);

// For people: "3.1 tokens a second with this model, the CPU 41".
std::string describe(const StepSeconds& seconds, std::string_view of = "");

// One kind of steps on both sides: who computes the next, until it is known who is to compute all.
class SpeedTrial {
 public:
  explicit SpeedTrial(const TrialRules& rules) : rules_(rules) {}

  enum class Finding : uint8_t {
    none,
    rests,          // far slower; the CPU computes these steps until more of the device is ready, and it is tried again
    worth_it,       // from now on known
    not_worth_it,   // the same; for_device() is false from now on, unless somebody insisted
    never_compared  // nor will it be
  };

  // A device was made, of which an earlier run may have known: then what look() would have found.
  Finding begin(const std::optional<StepSeconds>& known, bool insisted);

  void add(bool device, double seconds);  // for a row of a step that can be compared with others
  void computed(bool device);             // any step of this kind

  // Between steps.
  Finding look(const Upkeep& upkeep, bool insisted);

  bool for_device() const { return !slow_ && trial_steps_ == 0; }
  bool rests() const { return slow_ && !known_; }  // the device, far slower as yet
  StepSeconds seconds() const;                     // the median of either side; 0: not yet

 private:
  std::optional<double> typical(const std::vector<double>& seconds) const;
  Finding settle(const StepSeconds& seconds, bool insisted);

  TrialRules rules_;
  std::vector<double> device_, standby_;
  bool known_ = true;           // or never will be; at first there is no device
  bool tried_standby_ = false;  // the CPU may never have computed any: then it does for some steps, once
  int trial_steps_ = 0;         // of these that are still to come
  bool slow_ = false;
  int64_t improvements_ = 0;  // that the device had when it was found to be slow
};

// Where what was measured is kept from one run to the next.
struct KeptSpeeds {
  std::function<Speeds()> read = {};
  std::function<void(const Speeds&)> write = {};
};

}  // namespace onw
