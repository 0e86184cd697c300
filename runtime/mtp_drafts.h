// Drafts by the layer that predicts one token further, for all sessions of an engine: what they take, how often they
// are right, and whether the whole head or the short one is worth more.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/draft_plan.h"
#include "runtime/drafter.h"
#include "runtime/mtp.h"
#include "runtime/seconds_clock.h"
#include "runtime/step_costs.h"

namespace onw {

class MtpDrafts {
 public:
  static constexpr double kFirstChance = 0.7;  // that a guess is right, before any was seen

  // Measures the layer's steps of one row with either head, by the clock: some steps of a sequence of its own.
  MtpDrafts(Mtp& mtp, SecondsClock clock);

  bool can_guess(const Sequence& sequence) const { return mtp_.can_guess(sequence); }
  double chance() const { return right_ / tried_; }
  bool short_head() const { return short_; }

  // What one more token for so many sessions takes.
  double seconds(int sessions, int64_t depth) const { return seconds(sessions, depth, short_); }

  // As onw::plan_drafts, with the head that promises more; that head is used from then on.
  DraftPlan plan(std::span<const DraftOffer> offers, int most_rows, const DraftTimes& times, int64_t depth);

  // Fills in `wanted`; nothing where the layer fails.
  void guess(std::span<Guesses> wanted, const CancelToken& cancel);
  void catch_up(Sequence& sequence, bool wholly, const CancelToken& cancel);

  void drawn(int32_t token);
  void came_true(int drafted, int accepted);
  double take_seconds();  // in the layer since the last call, for drafts
  double seconds_in_all() const { return seconds_in_all_; }
  int64_t errors() const { return errors_; }
  using ByDepth = std::array<int64_t, MtpDrafter::kMostTokens>;
  const ByDepth& judged() const { return judged_; }  // guesses with so many right ones before them
  const ByDepth& right() const { return right_at_; }

 private:
  StepCosts& costs(bool short_head) { return short_head ? short_costs_ : whole_costs_; }
  double seconds(int sessions, int64_t depth, bool short_head) const;
  void measure(bool short_head);

  Mtp& mtp_;
  SecondsClock clock_;
  StepCosts whole_costs_, short_costs_;
  bool short_ = false;
  double right_, tried_;
  double covered_ = 0.97, weight_ = 64;  // the share of drawn tokens that the short head knows; of how many
  double seconds_ = 0, seconds_in_all_ = 0;
  int64_t errors_ = 0;
  ByDepth judged_{}, right_at_{};
};

}  // namespace onw
