#include "runtime/step_costs.h"

#include <algorithm>
#include <cmath>

namespace onw {
namespace {

constexpr int kFirst = 3;             // steps of a number of rows that count whole, before there is a mean
constexpr double kNewest = 0.1;       // the weight of a step: some correct the table, one slow one does not
constexpr double kMost = 2;           // times what is known, as which one step counts at most
constexpr double kPace = 0.5;         // how far the pace goes to the middle one of the last three steps
constexpr double kHalfKnown = 128;    // steps after which half of what a number of rows took too long is believed
constexpr double kUnknownRow = 0.05;  // of one row's time, that each further one is taken to cost before it is measured

size_t index_of(int rows) { return static_cast<size_t>(std::clamp(rows, 1, StepCosts::kMostRows)); }

}  // namespace

StepCosts::StepCosts(CostOf estimate, const Table& known) : estimate_(std::move(estimate)), relative_(known) {
  for (size_t rows = 0; rows < known.size(); ++rows)
    if (known[rows] > 0) times_[rows] = kFirst;
}

// A target that knows no cost says 0: all steps alike.
double StepCosts::estimate(const StepShape& shape) const {
  const double seconds = estimate_(shape).seconds;
  return seconds > 0 && std::isfinite(seconds) ? seconds : 1e-3;
}

// The middle one: a single step that was disturbed moves nothing.
void StepCosts::follow_pace(double off) {
  off_[static_cast<size_t>(steps_) % off_.size()] = off;
  std::array<double, 3> sorted = off_;
  std::ranges::sort(sorted);
  pace_ *= std::pow(sorted[1], kPace);
}

void StepCosts::took(const StepShape& shape, double seconds) {
  double now = seconds / estimate(shape);
  if (!std::isfinite(now) || now <= 0) return;
  const size_t at = index_of(shape.rows);
  ++steps_;
  last_[at] = steps_;
  double& known = relative_[at];
  if (std::ranges::any_of(relative_, [](double x) { return x > 0; })) {
    const double expected = pace_ * correction(shape.rows);
    now = std::min(now, kMost * expected);
    if (known > 0) follow_pace(now / expected);
  }
  now /= pace_;
  const bool first = times_[at] < kFirst;
  if (first) ++times_[at];
  known = first ? now : known + kNewest * (now - known);
}

StepCosts::Table StepCosts::table() const {
  Table table = relative_;
  for (double& x : table) x *= pace_;
  return table;
}

double StepCosts::correction(int rows) const {
  const auto at = static_cast<int>(index_of(rows));
  for (int away = 0; away < kMostRows; ++away)
    for (const int other : {at + away, at - away})
      if (other >= 1 && other <= kMostRows && relative_[static_cast<size_t>(other)] > 0)
        return relative_[static_cast<size_t>(other)];
  return 1;
}

double StepCosts::seconds(const StepShape& shape) const {
  const double seconds = estimate(shape) * pace_ * correction(shape.rows);
  if (shape.rows <= shape.sequences) return seconds;
  const StepShape plain = {shape.sequences, shape.sequences, shape.depth, shape.sequences};
  const double least = 1 + kUnknownRow * (shape.rows - shape.sequences);
  const double careful = least * estimate(plain) * pace_ * correction(plain.rows);
  const size_t at = index_of(shape.rows);
  if (relative_[at] == 0) return std::max(seconds, careful);
  const double believed = std::exp2(-static_cast<double>(steps_ - last_[at]) / kHalfKnown);
  return seconds <= careful ? seconds : careful + believed * (seconds - careful);
}

}  // namespace onw
