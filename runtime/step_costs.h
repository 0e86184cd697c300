// What a step of so many rows takes, against one of another number: what the target estimates, corrected by the steps
// that were measured. Drafts are as long as this says that they pay.
#pragma once

#include <array>
#include <cstddef>
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

  explicit StepCosts(CostOf estimate, const Table& known = {}) : estimate_(std::move(estimate)), measured_(known) {}

  // A step whose every row wanted logits took so long.
  void took(const StepShape& shape, double seconds);

  // Of such a step. A number of rows that was never measured is as far from its estimate as the nearest one that was,
  // and is taken to cost at least a little more than one row: an estimate that promises rows for nothing is tried with
  // care. Above zero.
  double seconds(const StepShape& shape) const;

  const Table& table() const { return measured_; }

 private:
  double estimate(const StepShape& shape) const;
  double correction(int rows) const;

  CostOf estimate_;
  Table measured_;
  std::array<int, kMostRows + 1> times_{};  // measured since the start, up to kFirst
};

}  // namespace onw
