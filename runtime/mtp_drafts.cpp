#include "runtime/mtp_drafts.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace onw {
namespace {

constexpr double kPriorTokens = 8;    // as many guesses as the first chance counts
constexpr double kFade = 0.995;       // of what is known of guesses, with each draft
constexpr double kMostChance = 0.98;  // nothing is certain
constexpr double kMostWeight = 4096;  // drawn tokens that are remembered for the share of the short head
constexpr double kSwitchGain = 1.02;  // what the other head must promise
constexpr int64_t kQueueRows = 64;    // hidden states that queue before the layer is run over them
constexpr int kMeasuredSteps = 4;

}  // namespace

MtpDrafts::MtpDrafts(Mtp& mtp, SecondsClock clock)
    : mtp_(mtp),
      clock_(std::move(clock)),
      whole_costs_([this](const StepShape& shape) { return mtp_.layer_cost(shape, false); }),
      short_costs_([this](const StepShape& shape) { return mtp_.layer_cost(shape, true); }),
      right_(kFirstChance * kPriorTokens),
      tried_(kPriorTokens) {
  measure(false);
  if (mtp_.layer_info().short_vocabulary > 0) measure(true);
}

// Of a sequence of one token, which is forgotten.
void MtpDrafts::measure(bool short_head) {
  const CancelToken never;
  auto sequence = mtp_.new_sequence();
  if (!sequence) return;
  for (int i = 0; i < kMeasuredSteps; ++i) {
    Row row = text_row(0, (*sequence)->length(), 0, false);
    row.wants_hidden = true;
    Sequence* const one = sequence->get();
    if ((*sequence)->length() >= mtp_.info().max_context - 2) return;
    if (!mtp_.run({.sequences = {&one, 1}, .rows = {&row, 1}}, never)) return;
    one->commit(1);
    Guesses g{.sequence = one, .next = 0, .count = 1, .draw = [](std::span<const float>, int) { return 0; }};
    const double begin = clock_();
    if (!mtp_.guess({&g, 1}, short_head, never)) return;
    if (i > 0) costs(short_head).took({1, 1, 0, 1}, clock_() - begin);  // the first brings the weights from the disk
  }
}

double MtpDrafts::seconds(int sessions, int64_t depth, bool short_head) const {
  return (short_head ? short_costs_ : whole_costs_).seconds({sessions, sessions, depth, sessions});
}

DraftPlan MtpDrafts::plan(std::span<const DraftOffer> offers, int most_rows, const DraftTimes& times, int64_t depth) {
  const DraftPlan now = plan_drafts(offers, most_rows, times);
  if (mtp_.layer_info().short_vocabulary == 0 ||
      std::ranges::none_of(offers, [](const DraftOffer& o) { return o.later && o.tokens > 0; }))
    return now;
  const double other_chance = short_ ? 1 / covered_ : covered_;
  std::vector<DraftOffer> changed(offers.begin(), offers.end());
  for (DraftOffer& offer : changed)
    if (offer.later) offer.chance = std::min(offer.chance * other_chance, kMostChance);
  DraftTimes other = times;
  other.making = [&](int sessions) { return seconds(sessions, depth, !short_); };
  DraftPlan then = plan_drafts(changed, most_rows, other);
  if (then.tokens_per_second <= kSwitchGain * now.tokens_per_second) return now;
  short_ = !short_;
  return then;
}

void MtpDrafts::guess(std::span<Guesses> wanted, const CancelToken& cancel) {
  int longest = 0;
  int64_t depth = 0;
  for (const Guesses& g : wanted) {
    longest = std::max(longest, g.count);
    depth += g.sequence->length() / static_cast<int64_t>(wanted.size());
  }
  const double begin = clock_();
  const auto done = mtp_.guess(wanted, short_, cancel);
  const double took = clock_() - begin;
  seconds_ += took;
  seconds_in_all_ += took;
  if (!done) {
    if (done.error().code != Code::cancelled) ++errors_;
    return;
  }
  const auto rows = static_cast<int>(wanted.size());
  if (longest > 0) costs(short_).took({rows, rows, depth, rows}, took / longest);
}

// What a checkpoint keeps should hold all that was computed.
void MtpDrafts::catch_up(Sequence& sequence, bool wholly, const CancelToken& cancel) {
  const double begin = clock_();
  const auto done = mtp_.catch_up(sequence, wholly ? 1 : kQueueRows, cancel);
  seconds_in_all_ += clock_() - begin;
  if (!done && done.error().code != Code::cancelled) ++errors_;
}

void MtpDrafts::drawn(int32_t token) {
  const int64_t few = mtp_.layer_info().short_vocabulary;
  if (few == 0) return;
  weight_ = std::min(weight_ + 1, kMostWeight);
  covered_ += ((token < few ? 1.0 : 0.0) - covered_) / weight_;
}

void MtpDrafts::came_true(int drafted, int accepted) {
  if (drafted == 0) return;
  for (int k = 0; k < std::min(drafted, accepted + 1); ++k) ++judged_.at(static_cast<size_t>(k));
  for (int k = 0; k < accepted; ++k) ++right_at_.at(static_cast<size_t>(k));
  right_ = right_ * kFade + accepted;
  tried_ = tried_ * kFade + accepted + (accepted < drafted ? 1 : 0);
}

double MtpDrafts::take_seconds() { return std::exchange(seconds_, 0.0); }

}  // namespace onw
