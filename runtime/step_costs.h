// What a step of so many rows takes, against one of another number: what the target estimates, corrected by the steps
// that were measured. Drafts are as long as this says that they pay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "targets/executable.h"

namespace onw {

class StepCosts {
 public:
  using CostOf = std::function<Cost(const StepShape&)>;
  static constexpr int kMostRows = 64;  // that are told apart

  // By rows: seconds over the estimate; 0: not measured.
  using Table = std::array<double, kMostRows + 1>;

  explicit StepCosts(CostOf estimate, const Table& known = {});

  // A step whose every row wanted logits took so long.
  void took(const StepShape& shape, double seconds);

  // Of such a step. A number of rows that was never measured is as far from its estimate as the nearest one that was,
  // and is taken to cost at least a little more than one row: an estimate that promises rows for nothing is tried with
  // care. So is, more and more, a number of rows that took long and has not been run since: if it was not the rows but
  // the moment, it is found out. Above zero.
  double seconds(const StepShape& shape) const;

  Table table() const;

 private:
  double estimate(const StepShape& shape) const;
  double correction(int rows) const;

  void follow_pace(double off);

  CostOf estimate_;
  Table relative_;  // measured, at a pace of 1
  // What steps of all rows take lately: a machine that throttles, or whose memory others use, is slower at each. What
  // pays follows from how they compare, and must not hang on when which of them was measured.
  double pace_ = 1;
  std::array<double, 3> off_ = {1, 1, 1};  // of the last steps from what was expected
  int64_t steps_ = 0;
  std::array<int64_t, kMostRows + 1> last_{};  // the step that had so many rows
  std::array<int, kMostRows + 1> times_{};     // measured, up to kFirst
};

}  // namespace onw
