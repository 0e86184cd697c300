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
  size_t depth = 0;   // how many are before it
  bool later = false;
};

// By chance, the highest first; of equal ones by offer, so that the plan is the same every time.
std::vector<DraftRow> rows_by_chance(std::span<const DraftOffer> offers, std::span<const int> most) {
  std::vector<DraftRow> rows;
  for (size_t i = 0; i < offers.size(); ++i) {
    double chance = 1;
    for (int k = 0; k < most[i]; ++k)
      rows.push_back({i, chance *= offers[i].chance, static_cast<size_t>(k), offers[i].later});
  }
  std::ranges::sort(rows, {}, [](const DraftRow& r) { return std::pair(-r.chance, r.offer); });
  return rows;
}

// What it takes to make the drafts that are made later: the k-th token of all sessions in one go.
class Making {
 public:
  explicit Making(const DraftTimes& times) : times_(times) {}
  void add(const DraftRow& row) {
    if (!row.later || !times_.making) return;
    if (sessions_.size() <= row.depth) sessions_.resize(row.depth + 1, 0);
    int& n = sessions_[row.depth];
    seconds_ += times_.making(n + 1) - (n > 0 ? times_.making(n) : 0);
    ++n;
  }
  double seconds() const { return seconds_; }

 private:
  const DraftTimes& times_;
  std::vector<int> sessions_;  // by depth
  double seconds_ = 0;
};

struct Choice {
  size_t rows = 0;
  double seconds = 0;  // of the step, and of making its drafts
  double tokens_per_second = 0;
};

// How many of `rows` to take. `step[r]`: what one with r drafted rows takes.
Choice best_choice(std::span<const DraftRow> rows, size_t sessions, std::span<const double> step,
                   const DraftTimes& times) {
  double tokens = static_cast<double>(sessions);
  double best = kLeastGain * tokens / step[0];
  Choice choice{0, step[0], tokens / step[0]};
  Making making(times);
  for (size_t r = 1; r <= rows.size() && r < step.size(); ++r) {
    tokens += rows[r - 1].chance;
    making.add(rows[r - 1]);
    const double seconds = step[r] + making.seconds();
    if (tokens / seconds <= best) continue;
    best = tokens / seconds;
    choice = {r, seconds, best};
  }
  return choice;
}

}  // namespace

double drafts_charge(size_t sessions, double seconds_without, double seconds) {
  return std::max(0.0, static_cast<double>(sessions) * (seconds / seconds_without - 1));
}

DraftPlan plan_drafts(std::span<const DraftOffer> offers, int most_rows, const DraftTimes& times) {
  const size_t sessions = offers.size();
  std::vector<int> most;  // by offer; lowered where a budget is short
  for (const DraftOffer& offer : offers) most.push_back(offer.budget >= 0 ? offer.tokens : 0);
  const int fewest_rows = static_cast<int>(sessions);
  const int all_rows = std::min(most_rows, std::accumulate(most.begin(), most.end(), fewest_rows));
  if (all_rows <= fewest_rows)
    return {.lengths = std::vector<int>(sessions, 0),
            .tokens_per_second = static_cast<double>(sessions) / times.seconds(fewest_rows)};
  std::vector<double> step;
  for (int rows = fewest_rows; rows <= all_rows; ++rows) step.push_back(times.seconds(rows));
  for (;;) {
    const auto rows = rows_by_chance(offers, most);
    const Choice choice = best_choice(rows, sessions, step, times);
    DraftPlan plan{.lengths = std::vector<int>(sessions, 0), .tokens_per_second = choice.tokens_per_second};
    if (choice.rows == 0) return plan;
    for (size_t r = 0; r < choice.rows; ++r) ++plan.lengths[rows[r].offer];
    plan.charge_per_token = drafts_charge(sessions, step[0], choice.seconds) / static_cast<double>(choice.rows);
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
