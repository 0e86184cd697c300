// Which rows go into the next step: a pure decision about numbers, so that fairness can be tested without a model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "targets/executable.h"

namespace onw {

// What one session still has to compute before it can draw, or must stop to keep its state.
struct Demand {
  uint64_t session = 0;   // the same in every step
  int64_t rows = 1;       // at least one
  bool decoding = false;  // somebody watches the answer grow: one row, and drafted ones, which may be left out
  int64_t depth = 0;      // length of its sequence
};

struct Share {
  size_t demand = 0;  // index into the demands
  int rows = 0;
};

struct SchedulerLimits {
  bool mixes = true;       // several sequences in one step
  int max_step_rows = 1;   // of the target
  int prompt_rows = 512;   // prompt rows in one step while nobody waits for a token
  double latency_s = 0.2;  // how long a step with prompt rows may last while somebody does
};

// Where the target mixes: decode rows of all first, then prompt rows, shared evenly among the prompts; what a short one
// does not need goes to the longer. Where it does not: a round of decode steps, then one chunk of the prompt that waits
// longest.
class Scheduler {
 public:
  using CostOf = std::function<Cost(const StepShape&)>;

  Scheduler(const SchedulerLimits& limits, CostOf cost) : limits_(limits), cost_(std::move(cost)) {}

  // The rows of the next step, at least one; `demands` (in order of arrival) are not empty.
  std::vector<Share> plan(std::span<const Demand> demands);

 private:
  std::vector<Share> plan_mixed(std::span<const Demand> demands);
  std::vector<Share> plan_alternating(std::span<const Demand> demands);
  int within_latency(int prompt_rows, const StepShape& beside) const;
  uint64_t last_served(const Demand& demand) const;

  SchedulerLimits limits_;
  CostOf cost_;
  std::map<uint64_t, uint64_t> served_;  // session: when it was last served
  uint64_t tick_ = 0;
  size_t decodes_since_prompt_ = 0;
};

}  // namespace onw
