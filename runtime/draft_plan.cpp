#include "runtime/draft_plan.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

namespace onw {
namespace {

constexpr double kLeastGain = 1.01;  // below that it is not worth a guess

struct DraftRow {
  size_t offer = 0;
  double chance = 0;  // that it and all before it of its draft are right
};

// By chance, the highest first; of equal ones by offer, so that the plan is the same every time.
std::vector<DraftRow> rows_by_chance(std::span<const DraftOffer> offers, std::span<const int> most) {
  std::vector<DraftRow> rows;
  for (size_t i = 0; i < offers.size(); ++i) {
    double chance = 1;
    for (int k = 0; k < most[i]; ++k) rows.push_back({i, chance *= offers[i].chance});
  }
  std::ranges::sort(rows, {}, [](const DraftRow& r) { return std::pair(-r.chance, r.offer); });
  return rows;
}

// How many of `rows` to take. `step[r]`: what one with r drafted rows takes.
size_t best_count(std::span<const DraftRow> rows, size_t sessions, std::span<const double> step) {
  double tokens = static_cast<double>(sessions);
  double best = kLeastGain * tokens / step[0];
  size_t count = 0;
  for (size_t r = 1; r <= rows.size() && r < step.size(); ++r) {
    tokens += rows[r - 1].chance;
    if (tokens / step[r] <= best) continue;
    best = tokens / step[r];
    count = r;
  }
  return count;
}

}  // namespace

double drafts_charge(size_t sessions, double seconds_without, double seconds) {
  return std::max(0.0, static_cast<double>(sessions) * (seconds / seconds_without - 1));
}

DraftPlan plan_drafts(std::span<const DraftOffer> offers, int most_rows, const std::function<double(int)>& seconds) {
  const size_t sessions = offers.size();
  std::vector<int> most;  // by offer; lowered where a budget is short
  for (const DraftOffer& offer : offers) most.push_back(offer.budget >= 0 ? offer.tokens : 0);
  const int fewest_rows = static_cast<int>(sessions);
  const int all_rows = std::min(most_rows, std::accumulate(most.begin(), most.end(), fewest_rows));
  if (all_rows <= fewest_rows) return {.lengths = std::vector<int>(sessions, 0)};
  std::vector<double> step;
  for (int rows = fewest_rows; rows <= all_rows; ++rows) step.push_back(seconds(rows));
  for (;;) {
    const auto rows = rows_by_chance(offers, most);
    const size_t count = best_count(rows, sessions, step);
    DraftPlan plan{.lengths = std::vector<int>(sessions, 0)};
    if (count == 0) return plan;
    for (size_t r = 0; r < count; ++r) ++plan.lengths[rows[r].offer];
    plan.charge_per_token = drafts_charge(sessions, step[0], step[count]) / static_cast<double>(count);
    bool within = true;
    for (size_t i = 0; i < sessions; ++i) {
      if (plan.lengths[i] * plan.charge_per_token <= offers[i].budget) continue;
      most[i] = plan.lengths[i] / 2;
      within = within && plan.lengths[i] == 0;
    }
    if (within) return plan;
  }
}

}  // namespace onw
