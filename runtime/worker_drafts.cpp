#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/draft_plan.h"
#include "runtime/worker.h"

namespace onw {

// In the order in which they are asked: cheap guesses first.
std::vector<std::unique_ptr<Drafter>> Worker::ladder() const {
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (limits_.prompt_lookup) drafters.push_back(std::make_unique<PromptLookup>(earlier_));
  return drafters;
}

DraftOffer Worker::offer(Session& session) {
  if (!session.job().request.drafts) return {};
  if (!session.speculator) {
    auto drafters = ladder();
    if (drafters.empty()) return {};
    session.speculator.emplace(std::move(drafters));
  }
  const ExecutableInfo& model = executable_->info();
  const int64_t most = std::min<int64_t>(session.draft_room(), model.max_partial_rows - 1);
  return session.speculator->offer(session.tokens(), static_cast<int>(std::min<int64_t>(most, Speculator::kMostTokens)),
                                   model.vocabulary);
}

// Sets the drafts of all sessions that decode.
void Worker::plan_drafts() {
  std::vector<Session*> decoding;
  for (const auto& session : active_) {
    session->draft.clear();
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
  const DraftPlan plan =
      onw::plan_drafts(offers, most_rows, [&](int rows) { return step_costs_.seconds({rows, count, depth, rows}); });
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (plan.lengths[i] == 0) continue;
    const auto tokens = sessions[i]->speculator->tokens().first(static_cast<size_t>(plan.lengths[i]));
    sessions[i]->draft.assign(tokens.begin(), tokens.end());
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
  if (drafted == 0) return;
  const auto seconds = [&](int rows) { return step_costs_.seconds({rows, sessions, depth / sessions, rows}); };
  const double charge =
      drafts_charge(static_cast<size_t>(sessions), seconds(sessions), seconds(sessions + drafted)) / drafted;
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
  if (session.speculator) session.speculator->settle(static_cast<int>(draft.size()), accepted, session.draft_charge);
  keep(session, static_cast<int>(drawn));
}

}  // namespace onw
