#include "runtime/worker.h"

#include <algorithm>
#include <utility>

#include "runtime/measured_steps.h"
#include "runtime/memory.h"

namespace onw {

Worker::Worker(std::unique_ptr<Executable> executable, const WorkerLimits& limits, RunningStep& running_step)
    : executable_(std::move(executable)),
      limits_(limits),
      running_step_(running_step),
      scheduler_(limits.scheduler,
                 [this](const StepShape& shape) { return Cost{slowness_ * executable_->cost(shape).seconds}; }),
      cache_(*executable_),
      step_costs_([this](const StepShape& shape) { return executable_->cost(shape); },
                  limits.step_table.empty() ? StepCosts::Table{} : read_step_table(limits.step_table)) {
  if (Mtp* mtp = limits.mtp ? dynamic_cast<Mtp*>(executable_.get()) : nullptr)
    mtp_ = std::make_unique<MtpDrafts>(*mtp, limits.seconds);
  if (limits_.lookup_in_earlier) earlier_ = std::make_shared<EarlierText>();
}

Worker::~Worker() {
  if (!limits_.step_table.empty() && stats_.steps > 0) write_step_table(limits_.step_table, step_costs_.table());
}

void Worker::add(std::shared_ptr<Job> job) {
  ++stats_.requests;
  waiting_.push_back(std::make_unique<Session>(std::move(job), ++sessions_, limits_.context_tokens));
}

void Worker::take_in() {
  end_cancelled();
  rest_if_idle();
  admit();
}

void Worker::step() {
  take_in();
  if (active_.empty()) return;
  const std::vector<Part> parts = plan();
  if (!parts.empty()) run(parts);
  remove_finished();
}

void Worker::end_cancelled() {
  for (auto& session : waiting_)
    if (session->cancelled()) session->finish(FinishReason::cancelled);
  std::erase_if(waiting_, [](const auto& session) { return session->finished(); });
  for (auto& session : active_)
    if (session->cancelled()) session->finish(FinishReason::cancelled);
  remove_finished();
}

void Worker::cancel_all() {
  for (auto& session : waiting_) session->finish(FinishReason::cancelled);
  for (auto& session : active_) session->finish(FinishReason::cancelled);
  waiting_.clear();
  active_.clear();
  count_bytes();
}

// The rows of the next step, with memory for each; a session that cannot have it has failed or waits again.
std::vector<Worker::Part> Worker::plan() {
  plan_drafts();
  std::vector<Demand> demands;
  for (const auto& session : active_)
    demands.push_back({.session = session->id(),
                       .rows = session->rows_until_stop() + static_cast<int64_t>(session->draft.size()),
                       .decoding = session->decodes(),
                       .depth = session->conversation->length()});
  std::vector<Part> parts;
  for (const Share& share : scheduler_.plan(demands)) {
    Session& session = *active_[share.demand];
    if (!session.draft.empty()) session.draft.resize(static_cast<size_t>(share.rows) - 1);
    parts.push_back({&session, share.rows});
  }
  for (const Part& part : parts) {
    if (!part.session->conversation) continue;
    auto room = make_room(*part.session, part.session->conversation->length() + part.rows);
    if (!room) fail(*part.session, std::move(room.error()));
  }
  std::erase_if(parts, [](const Part& part) { return !part.session->conversation || part.session->finished(); });
  return parts;
}

void Worker::run(std::span<const Part> parts) {
  const double begin = limits_.seconds();
  auto outputs = run_rows(parts);
  const double seconds = limits_.seconds() - begin;
  stats_.busy_seconds += seconds;
  ++stats_.steps;
  if (outputs) {
    learn_cost(parts, seconds);
    charge_drafts(parts);
    return take(parts, *outputs);
  }
  const bool unwanted = std::ranges::all_of(parts, [](const Part& part) { return part.session->cancelled(); });
  if (outputs.error().code == Code::cancelled && (unwanted || running_step_.stopped())) return;
  if (run_without_drafts(parts)) return;
  if (parts.size() == 1) return fail(*parts.front().session, std::move(outputs.error()));
  // All are as before the step. Alone, whoever broke it is found, and the others go on.
  for (const Part& part : parts) run({&part, 1});
}

// Targets estimate for a typical machine, and without what else it has to do; the latency bound is about this one.
void Worker::learn_cost(std::span<const Part> parts, double seconds) {
  constexpr double kNewest = 0.2;  // the weight of this step: a few steps correct it, one slow one does not
  constexpr double kMost = 10;     // a step during which the machine slept says nothing
  StepShape shape = {.rows = 0, .sequences = static_cast<int>(parts.size()), .logits_rows = 0};
  for (const Part& part : parts) {
    const int64_t length = part.session->conversation->length();
    shape.rows += part.rows;
    shape.depth += length / static_cast<int64_t>(parts.size());
    if (length + part.rows >= part.session->total())
      shape.logits_rows += 1 + static_cast<int>(part.session->draft.size());
  }
  if (shape.logits_rows == shape.rows) step_costs_.took(shape, seconds);
  const double estimated = executable_->cost(shape).seconds;
  if (estimated > 0) slowness_ += kNewest * (std::min(seconds / estimated, kMost) - slowness_);
}

Result<Outputs> Worker::run_rows(std::span<const Part> parts) {
  std::vector<Sequence*> sequences;
  std::vector<Row> rows;
  std::vector<RunningStep::Choice> choices;
  for (const Part& part : parts) {
    const Session& session = *part.session;
    Conversation& conversation = *part.session->conversation;
    const auto index = static_cast<int>(sequences.size());
    sequences.push_back(&conversation.sequence());
    for (int choice = 0; choice <= session.other_choices(); ++choice)
      choices.emplace_back(&session.job(), session.choice() + choice);
    for (int64_t at = conversation.length(); at < conversation.length() + part.rows; ++at) {
      const int64_t drafted = at - session.total();  // from 0 on
      const TokenKey key = drafted < 0 ? session.tokens()[static_cast<size_t>(at)]
                                       : TokenKey{session.draft[static_cast<size_t>(drafted)]};
      Row row = text_row(index, at, key.token, session.wants_token() && drafted >= -1);
      row.content_digest = key.content_digest;
      row.wants_hidden = mtp_ != nullptr && session.job().request.drafts;
      rows.push_back(row);
    }
  }
  const CancelToken& cancel = running_step_.begin(std::move(choices));
  auto outputs = executable_->run({.sequences = sequences, .rows = rows}, cancel);
  running_step_.end();
  return outputs;
}

// The step is done: keeps its rows, and draws where a session has come to the end of its tokens.
void Worker::take(std::span<const Part> parts, const Outputs& outputs) {
  const auto vocabulary = static_cast<size_t>(executable_->info().vocabulary);
  std::span<const float> logits = outputs.logits;
  for (const Part& part : parts) {
    Session& session = *part.session;
    if (session.decodes()) {
      const size_t values = static_cast<size_t>(part.rows) * vocabulary;
      take_drafted(session, logits.first(values));
      logits = logits.subspan(values);
      continue;
    }
    keep(session, part.rows);
    if (session.pending() > 0) continue;
    if (!session.wants_token()) {
      session.finish(FinishReason::length);
      continue;
    }
    next_token(session, logits.first(vocabulary));
    logits = logits.subspan(vocabulary);
  }
}

void Worker::keep(Session& session, int rows) {
  Conversation& conversation = *session.conversation;
  conversation.sequence().commit(rows);
  conversation.append(session.tokens().subspan(static_cast<size_t>(conversation.length()), static_cast<size_t>(rows)));
  const bool keeps = session.keeps_state_here();
  if (mtp_ != nullptr) {
    mtp_->catch_up(conversation.sequence(), keeps, running_step_.begin_unasked());
    running_step_.end();
  }
  // A checkpoint that cannot be had costs time later, and nothing now.
  if (keeps && conversation.checkpoint()) trim();
}

void Worker::next_token(Session& session, std::span<const float> logits) {
  if (session.other_choices() > 0) begin_other_choices(session, logits);
  draw(session, logits);
}

void Worker::draw(Session& session, std::span<const float> logits) {
  const int64_t before = session.usage().completion_tokens;
  session.draw(logits);
  stats_.completion_tokens += session.usage().completion_tokens - before;
  if (mtp_ != nullptr && session.usage().completion_tokens > before) mtp_->drawn(session.tokens().back().token);
}

// All choices draw their first token from the same row, and go apart from there.
void Worker::begin_other_choices(Session& first, std::span<const float> logits) {
  for (int choice = 1; choice <= first.job().request.choices - 1; ++choice) {
    auto session = first.another_choice(choice, ++sessions_);
    if (!session) {
      first.finish_choice(choice, std::move(session.error()));
      continue;
    }
    draw(**session, logits);
    if ((*session)->finished()) continue;
    auto fork = first.conversation->fork(first.tokens());
    if (fork) {
      (*session)->begin(std::move(*fork));
      active_.push_back(std::move(*session));
    } else {
      waiting_.push_front(std::move(*session));  // no memory now: computed again when there is
    }
  }
}

void Worker::fail(Session& session, Error why) {
  session.conversation.reset();  // not to be used again
  session.finish(FinishReason::error, std::move(why));
}

void Worker::remove_finished() {
  bool any = false;
  for (auto& session : active_) {
    if (!session->finished()) continue;
    any = true;
    if (earlier_ != nullptr)
      earlier_->add(session->tokens().subspan(static_cast<size_t>(session->usage().reused_tokens)));
    if (session->conversation) cache_.put(std::move(*session->conversation));
    session->conversation.reset();
  }
  if (!any) return;
  std::erase_if(active_, [](const auto& session) { return session->finished(); });
  trim();
  count_bytes();
}

EngineStats Worker::stats() const {
  EngineStats stats = stats_;
  if (mtp_ != nullptr) {
    stats.mtp_judged = mtp_->judged();
    stats.mtp_right = mtp_->right();
    stats.mtp_errors = mtp_->errors();
    stats.mtp_seconds = mtp_->seconds_in_all();
  }
  stats.active = static_cast<int>(active_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  return stats;
}

}  // namespace onw
