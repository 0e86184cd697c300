#include "runtime/step_costs.h"

#include <algorithm>
#include <cmath>

namespace onw {
namespace {

constexpr int kFirst = 3;             // steps of a number of rows that count whole, before there is a mean
constexpr double kNewest = 0.1;       // the weight of a step: some correct the table, one slow one does not
constexpr double kMost = 2;           // times what is known, as which one step counts at most
constexpr double kUnknownRow = 0.05;  // of one row's time, that each further one is taken to cost before it is measured

size_t index_of(int rows) { return static_cast<size_t>(std::clamp(rows, 1, StepCosts::kMostRows)); }

}  // namespace

// A target that knows no cost says 0: all steps alike.
double StepCosts::estimate(const StepShape& shape) const {
  const double seconds = estimate_(shape).seconds;
  return seconds > 0 && std::isfinite(seconds) ? seconds : 1e-3;
}

void StepCosts::took(const StepShape& shape, double seconds) {
  const double now = seconds / estimate(shape);
  if (!std::isfinite(now) || now <= 0) return;
  const bool any = std::ranges::any_of(measured_, [](double x) { return x > 0; });
  const double most = any ? kMost * correction(shape.rows) : now;
  const size_t at = index_of(shape.rows);
  double& known = measured_[at];
  const bool first = times_[at] < kFirst;
  if (first) ++times_[at];
  known = first || known == 0 ? std::min(now, most) : known + kNewest * (std::min(now, most) - known);
}

double StepCosts::correction(int rows) const {
  const auto at = static_cast<int>(index_of(rows));
  for (int away = 0; away < kMostRows; ++away)
    for (const int other : {at + away, at - away})
      if (other >= 1 && other <= kMostRows && measured_[static_cast<size_t>(other)] > 0)
        return measured_[static_cast<size_t>(other)];
  return 1;
}

double StepCosts::seconds(const StepShape& shape) const {
  const double seconds = estimate(shape) * correction(shape.rows);
  if (shape.rows <= shape.sequences || measured_[index_of(shape.rows)] > 0) return seconds;
  const StepShape plain = {shape.sequences, shape.sequences, shape.depth, shape.sequences};
  const double least = 1 + kUnknownRow * (shape.rows - shape.sequences);
  return std::max(seconds, least * estimate(plain) * correction(plain.rows));
}

}  // namespace onw
