// How many tokens each session drafts in the next step: a pure decision about numbers, so that what drafting may cost
// can be tested without a model.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace onw {

struct DraftOffer {
  int tokens = 0;      // that could be drafted
  double chance = 0;   // of each to be right, where those before it are
  double budget = 0;   // tokens that may be lost if none is right, as Speculator counts them
  bool later = false;  // they are yet to be made, one after another, each session's together with the others'
};

// What the drafts of a step cost, in tokens: without them it would have taken less, and each of its sessions would be
// as much nearer to its next token.
double drafts_charge(size_t sessions, double seconds_without, double seconds);

struct DraftPlan {
  std::vector<int> lengths;     // by offer
  double charge_per_token = 0;  // of those drafted
  double tokens_per_second = 0;
};

// What steps take, by their rows; and what it takes to make one more token for so many sessions at once.
struct DraftTimes {
  std::function<double(int rows)> seconds;
  std::function<double(int sessions)> making = {};  // empty where nothing is made later
};

// Of all lengths those that promise the most tokens a second: rows are taken by their chance to be of use, so the more
// sessions share a step, the fewer each gets once rows begin to cost. No session is charged more than its budget.
// `offers` has one entry for each session that decodes, at least one; the step has at most `most_rows` rows.
DraftPlan plan_drafts(std::span<const DraftOffer> offers, int most_rows, const DraftTimes& times);
inline DraftPlan plan_drafts(std::span<const DraftOffer> offers, int most_rows,
                             const std::function<double(int)>& seconds) {
  return plan_drafts(offers, most_rows, DraftTimes{seconds});
}

}  // namespace onw
