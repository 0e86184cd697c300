#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/draft_plan.h"
#include "runtime/worker.h"

namespace onw {

// In the order in which they are asked: cheap guesses first.
std::vector<std::unique_ptr<Drafter>> Worker::ladder(Session& session) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (limits_.prompt_lookup) drafters.push_back(std::make_unique<PromptLookup>(earlier_));
  if (mtp_ != nullptr)
    drafters.push_back(std::make_unique<MtpDrafter>([this, &session] {
      return session.conversation && mtp_->can_guess(session.conversation->sequence()) ? mtp_->chance() : 0.0;
    }));
  return drafters;
}

DraftOffer Worker::offer(Session& session) {
  if (!session.job().request.drafts) return {};
  if (!session.speculator) {
    auto drafters = ladder(session);
    if (drafters.empty()) return {};
    session.speculator.emplace(std::move(drafters));
  }
  const ExecutableInfo& model = executable_->info();
  const int64_t most = std::min<int64_t>(session.draft_room(), model.max_partial_rows - 1);
  const int64_t depth = session.conversation->length();
  const auto worth = [&](DraftOffer offer) {  // alone, and whatever its budget
    offer.budget = std::numeric_limits<double>::max();
    return onw::plan_drafts({&offer, 1}, 1 + offer.tokens, draft_times(1, depth)).tokens_per_second;
  };
  return session.speculator->offer(session.tokens(), static_cast<int>(std::min<int64_t>(most, Speculator::kMostTokens)),
                                   model.vocabulary, mtp_ ? worth : Speculator::Worth());
}

DraftTimes Worker::draft_times(int sessions, int64_t depth) const {
  DraftTimes times = {[=, this](int rows) { return step_costs_.seconds({rows, sessions, depth, rows}); }};
  if (mtp_ != nullptr) times.making = [=, this](int each) { return mtp_->seconds(each, depth); };
  return times;
}

// Sets the drafts of all sessions that decode.
void Worker::plan_drafts() {
  std::vector<Session*> decoding;
  for (const auto& session : active_) {
    session->draft.clear();
    session->draft_by_mtp = false;
    if (session->decodes()) decoding.push_back(session.get());
  }
  if (decoding.empty()) return;
  const int places = limits_.scheduler.max_step_rows - (decoding.size() < active_.size() ? 1 : 0);
  if (limits_.scheduler.mixes) return draft_together(decoding, places);
  for (Session* session : decoding) draft_together({&session, 1}, places);
}

void Worker::draft_together(std::span<Session* const> sessions, int most_rows) {
  std::vector<DraftOffer> offers;
  int64_t depth = 0;
  for (Session* session : sessions) {
    offers.push_back(offer(*session));
    depth += session->conversation->length() / static_cast<int64_t>(sessions.size());
  }
  const auto count = static_cast<int>(sessions.size());
  const DraftPlan plan = mtp_ != nullptr ? mtp_->plan(offers, most_rows, draft_times(count, depth), depth)
                                         : onw::plan_drafts(offers, most_rows, draft_times(count, depth));
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (plan.lengths[i] == 0 || offers[i].later) continue;
    const auto tokens = sessions[i]->speculator->tokens().first(static_cast<size_t>(plan.lengths[i]));
    sessions[i]->draft.assign(tokens.begin(), tokens.end());
  }
  if (mtp_ != nullptr) make_drafts(sessions, plan);
}

// Those that the layer makes, for all that want some at once. Where it fails there are none.
void Worker::make_drafts(std::span<Session* const> sessions, const DraftPlan& plan) {
  std::vector<Guesses> wanted;
  std::vector<Session*> by;
  std::vector<RunningStep::Choice> choices;
  for (size_t i = 0; i < sessions.size(); ++i) {
    Session& session = *sessions[i];
    if (plan.lengths[i] == 0 || !session.speculator || !session.speculator->later()) continue;
    wanted.push_back({.sequence = &session.conversation->sequence(),
                      .next = session.tokens().back().token,
                      .count = plan.lengths[i],
                      .draw = [&session](std::span<const float> logits, int k) { return session.guess(logits, k); }});
    by.push_back(&session);
    choices.emplace_back(&session.job(), session.choice());
  }
  if (wanted.empty()) return;
  mtp_->guess(wanted, running_step_.begin(std::move(choices)));
  running_step_.end();
  for (size_t i = 0; i < by.size(); ++i) {
    auto& tokens = wanted[i].tokens;
    tokens.erase(std::ranges::find_if(tokens, [](int32_t id) { return id < 0; }), tokens.end());
    by[i]->draft = std::move(tokens);
    by[i]->draft_by_mtp = true;
  }
}

// What the drafts of a step have cost, as the step's own time has taught it, shared by their tokens.
void Worker::charge_drafts(std::span<const Part> parts) {
  int sessions = 0, drafted = 0;
  int64_t depth = 0;
  for (const Part& part : parts) {
    part.session->draft_charge = 0;
    if (!part.session->decodes()) continue;
    ++sessions;
    drafted += static_cast<int>(part.session->draft.size());
    depth += part.session->conversation->length();
  }
  const double making = mtp_ != nullptr ? mtp_->take_seconds() : 0;
  if (drafted == 0) return;
  const auto seconds = [&](int rows) { return step_costs_.seconds({rows, sessions, depth / sessions, rows}); };
  const double charge =
      drafts_charge(static_cast<size_t>(sessions), seconds(sessions), seconds(sessions + drafted) + making) / drafted;
  for (const Part& part : parts)
    if (part.session->decodes()) part.session->draft_charge = charge * static_cast<double>(part.session->draft.size());
}

// After a step that failed, with all as before it: an error over a token that only a guess has seen ends no answer.
// False where there were no drafts.
bool Worker::run_without_drafts(std::span<const Part> parts) {
  std::vector<Part> plain(parts.begin(), parts.end());
  bool any = false;
  for (Part& part : plain) {
    if (part.session->draft.empty()) continue;
    any = true;
    part.rows = 1;
    part.session->speculator->settle_failed(static_cast<int>(part.session->draft.size()));
    part.session->draft.clear();
  }
  if (any) run(plain);
  return any;
}

// Draws from row after row, as long as the next row stands on the token that was drawn. Each draw is what it would be
// alone: its row has seen the answer so far and nothing else. Rows that stand on another token go.
void Worker::take_drafted(Session& session, std::span<const float> logits) {
  const auto vocabulary = static_cast<size_t>(executable_->info().vocabulary);
  const std::vector<int32_t>& draft = session.draft;
  session.count_drafted();
  size_t drawn = 0;
  for (;;) {
    draw(session, logits.subspan(drawn * vocabulary, vocabulary));
    ++drawn;
    if (session.finished() || session.cancelled() || drawn > draft.size()) break;
    if (session.tokens().back().token != draft[drawn - 1]) break;
    session.count_accepted();
  }
  const auto accepted = static_cast<int>(drawn) - 1;
  stats_.drafted_tokens += static_cast<int64_t>(draft.size());
  stats_.accepted_tokens += accepted;
  if (session.draft_by_mtp) {
    stats_.mtp_drafted_tokens += static_cast<int64_t>(draft.size());
    stats_.mtp_accepted_tokens += accepted;
    mtp_->came_true(static_cast<int>(draft.size()), accepted);
  }
  if (session.speculator) session.speculator->settle(static_cast<int>(draft.size()), accepted, session.draft_charge);
  keep(session, static_cast<int>(drawn));
}

}  // namespace onw
