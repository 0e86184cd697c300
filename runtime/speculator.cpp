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

}  // namespace

double Speculator::Record::chance() const { return std::min(right / tried, kMostChance); }

Speculator::Speculator(std::vector<std::unique_ptr<Drafter>> ladder)
    : ladder_(std::move(ladder)), patience_(kLeastPatience) {
  CHECK(!ladder_.empty());
  for (const auto& drafter : ladder_) records_.emplace_back(static_cast<size_t>(drafter->grades()));
}

DraftOffer Speculator::offer(std::span<const TokenKey> conversation, int most, int64_t vocabulary) {
  draft_ = {};
  trial_ = false;
  double surest = -1;
  for (size_t i = 0; i < ladder_.size() && surest < kSure && most > 0; ++i) {
    Draft draft = ladder_[i]->propose(conversation, std::min(most, kMostTokens));
    const auto outside = std::ranges::find_if(draft.tokens, [&](int32_t id) { return id < 0 || id >= vocabulary; });
    draft.tokens.erase(outside, draft.tokens.end());
    if (draft.tokens.empty()) continue;
    Record& known = records_[i][static_cast<size_t>(draft.grade)];
    if (known.tried == 0) known = {draft.chance * kPriorTokens, kPriorTokens};
    if (known.chance() <= surest) continue;
    surest = known.chance();
    voice_ = i;
    draft_ = std::move(draft);
  }
  trial_ = !draft_.tokens.empty() && idle_steps_ >= patience_;
  if (trial_) {
    draft_.tokens.resize(std::min<size_t>(draft_.tokens.size(), kTrialTokens));
    surest = std::max(surest, kTrialChance);
  }
  return {.tokens = static_cast<int>(draft_.tokens.size()),
          .chance = std::max(surest, 0.0),
          .budget = account_ + kMostLoss * static_cast<double>(drawn_ + 1)};
}

void Speculator::settle(int drafted, int accepted, double charge) {
  drawn_ += 1 + accepted;
  if (drafted == 0) {
    if (!draft_.tokens.empty()) ++idle_steps_;
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
