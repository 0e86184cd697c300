#include "runtime/session.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace onw {
namespace {

constexpr int64_t kCheckpointEvery = 1024;  // rows

bool contains(const auto& list, const auto& value) { return std::ranges::find(list, value) != list.end(); }

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Session::Session(std::shared_ptr<Job> job, uint64_t id, int64_t context_tokens)
    : job_(std::move(job)),
      id_(id),
      tokens_(text_keys(job_->request.prompt)),
      sampler_(job_->request.sampling, job_->seed, 0),
      mask_(std::move(job_->request.mask)) {
  const int64_t room = context_tokens - total();
  answer_limit_ = job_->request.max_tokens < 0 ? room : std::min(room, job_->request.max_tokens);
  sampler_.see_prompt(job_->request.prompt);
  usage_.prompt_tokens = total();
}

Session::Session(const Session& first, int choice, uint64_t id, std::unique_ptr<LogitMask> mask)
    : job_(first.job_),
      choice_(choice),
      id_(id),
      tokens_(first.tokens_),
      sampler_(job_->request.sampling, job_->seed, static_cast<uint32_t>(choice)),
      mask_(std::move(mask)),
      answer_limit_(first.answer_limit_),
      usage_(first.usage_),
      began_(first.began_) {
  sampler_.see_prompt(job_->request.prompt);
}

Result<std::unique_ptr<Session>> Session::another_choice(int choice, uint64_t id) const {
  CHECK(in_prompt());
  std::unique_ptr<LogitMask> mask;
  if (mask_ != nullptr) {
    auto fork = mask_->fork();
    RETURN_IF_ERROR(fork);
    mask = std::move(*fork);
  }
  return std::make_unique<Session>(*this, choice, id, std::move(mask));
}

bool Session::cancelled() const {
  const auto first = job_->cancelled.begin() + choice_;
  return std::all_of(first, first + 1 + other_choices(), [](const std::atomic<bool>& flag) { return flag.load(); });
}

// Where the state is to be kept next.
int64_t Session::next_kept_length() const {
  if (!conversation->wants_checkpoints()) return std::numeric_limits<int64_t>::max();
  const int64_t length = conversation->length();
  int64_t next = (length / kCheckpointEvery + 1) * kCheckpointEvery;
  for (const int64_t branch : job_->request.branch_points)
    if (branch > length) next = std::min(next, branch);
  return next;
}

int64_t Session::rows_until_stop() const { return std::min(total(), next_kept_length()) - conversation->length(); }

int64_t Session::draft_room() const {
  const int64_t answer_left = answer_limit_ - usage_.completion_tokens - 1;  // one is drawn in any case
  const int64_t end = std::min(reserved_tokens, next_kept_length());
  return std::max<int64_t>(0, std::min(answer_left, end - total()));
}

bool Session::keeps_state_here() const {
  const int64_t length = conversation->length();
  return conversation->wants_checkpoints() &&
         (length % kCheckpointEvery == 0 || contains(job_->request.branch_points, length));
}

void Session::begin(Conversation state) {
  conversation = std::move(state);
  reserved_tokens = 0;
  if (began_) return;  // set aside and taken up again: reported as it was
  began_ = Clock::now();
  usage_.reused_tokens = conversation->length();
  usage_.queue_seconds = seconds(*began_ - job_->submitted);
}

int32_t Session::guess(std::span<const float> logits, int k) {
  const auto drawn = sampler_.draw(logits, total() + k, nullptr, -1);
  return drawn ? drawn->id : -1;
}

void Session::draw(std::span<const float> logits) {
  if (!first_token_) first_token_ = Clock::now();
  auto drawn = sampler_.draw(logits, total(), mask_.get(), job_->request.logprobs);
  if (!drawn) return finish(FinishReason::error, std::move(drawn.error()));
  if (mask_ != nullptr) {
    auto accepted = mask_->accept(drawn->id);
    if (!accepted) return finish(FinishReason::error, std::move(accepted.error()));
  }
  ++usage_.completion_tokens;
  sampler_.see_answer(drawn->id);
  tokens_.push_back({drawn->id, 0});
  FinishReason reason = FinishReason::none;
  if (usage_.completion_tokens == answer_limit_) reason = FinishReason::length;
  if (contains(job_->request.stop_ids, drawn->id)) reason = FinishReason::stop;
  finished_ = reason != FinishReason::none;
  report(choice_, {.id = drawn->id, .logprob = drawn->logprob, .top = std::move(drawn->top), .finish = reason});
}

void Session::finish(FinishReason reason, std::optional<Error> why) {
  finished_ = true;
  const int last = choice_ + other_choices();
  for (int choice = choice_; choice <= last; ++choice) report(choice, {.finish = reason, .error = why});
}

void Session::report(int choice, TokenEvent event) {
  const auto now = Clock::now();
  if (began_) usage_.prefill_seconds = seconds(first_token_.value_or(now) - *began_);
  if (first_token_) usage_.decode_seconds = seconds(now - *first_token_);
  event.choice = choice;
  event.usage = usage_;
  job_->channel.push(std::move(event));
}

}  // namespace onw
