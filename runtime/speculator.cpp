#include "runtime/speculator.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace onw {
namespace {

constexpr double kSure = 0.7;         // chance from which no further drafter is asked
constexpr double kMostChance = 0.98;  // nothing is certain
constexpr double kPriorTokens = 2;    // as many tokens as what is known beforehand counts
constexpr double kFade = 0.9;         // of what is known, with each draft
constexpr double kMostAccount = 2;    // tokens
constexpr double kTrialChance = 0.9;  // as which a trial is offered: short, and whatever it has been
constexpr int kTrialTokens = 2;
constexpr int kLeastPatience = 16;  // steps; each trial in vain doubles it
constexpr int kMostPatience = 256;

int count(const Draft& draft) { return draft.later > 0 ? draft.later : static_cast<int>(draft.tokens.size()); }

}  // namespace

double Speculator::Record::chance() const { return std::min(right / tried, kMostChance); }

Speculator::Speculator(std::vector<std::unique_ptr<Drafter>> ladder)
    : ladder_(std::move(ladder)), patience_(kLeastPatience) {
  CHECK(!ladder_.empty());
  for (const auto& drafter : ladder_) records_.emplace_back(static_cast<size_t>(drafter->grades()));
}

DraftOffer Speculator::offer(std::span<const TokenKey> conversation, int most, int64_t vocabulary, const Worth& worth) {
  draft_ = {};
  trial_ = false;
  double surest = 0, dearest = 0;
  for (size_t i = 0; i < ladder_.size() && (surest < kSure || worth) && most > 0; ++i) {
    Draft draft = ladder_[i]->propose(conversation, std::min(most, kMostTokens));
    const auto outside = std::ranges::find_if(draft.tokens, [&](int32_t id) { return id < 0 || id >= vocabulary; });
    draft.tokens.erase(outside, draft.tokens.end());
    if (draft.tokens.empty() && draft.later == 0) continue;
    Record& known = records_[i][static_cast<size_t>(draft.grade)];
    if (known.tried == 0) known = {draft.chance * kPriorTokens, kPriorTokens};
    const double chance = known.chance();
    const double value = worth ? worth({.tokens = count(draft), .chance = chance, .later = draft.later > 0}) : chance;
    if (count(draft_) > 0 && value <= dearest) continue;
    surest = chance;
    dearest = value;
    voice_ = i;
    draft_ = std::move(draft);
  }
  trial_ = count(draft_) > 0 && idle_steps_ >= patience_;
  if (trial_) {
    draft_.tokens.resize(std::min<size_t>(draft_.tokens.size(), kTrialTokens));
    draft_.later = std::min(draft_.later, kTrialTokens);
    surest = std::max(surest, kTrialChance);
  }
  return {.tokens = count(draft_),
          .chance = surest,
          .budget = account_ + kMostLoss * static_cast<double>(drawn_ + 1),
          .later = draft_.later > 0};
}

void Speculator::settle(int drafted, int accepted, double charge) {
  drawn_ += 1 + accepted;
  if (drafted == 0) {
    if (count(draft_) > 0) ++idle_steps_;
    return;
  }
  judge(drafted, accepted, charge);
}

void Speculator::judge(int drafted, int accepted, double charge) {
  account_ = std::min(account_ + accepted - charge, kMostAccount);
  Record& known = record();
  known.right = known.right * kFade + accepted;
  known.tried = known.tried * kFade + accepted + (accepted < drafted ? 1 : 0);
  idle_steps_ = 0;
  if (accepted > 0)
    patience_ = kLeastPatience;
  else if (trial_)
    patience_ = std::min(patience_ * 2, kMostPatience);
}

}  // namespace onw
