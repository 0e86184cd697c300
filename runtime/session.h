// One choice of one request on its way: its tokens, the state that holds them, and how the next one is drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/conversation.h"
#include "runtime/job.h"
#include "runtime/sampler.h"
#include "runtime/speculator.h"

namespace onw {

class Session {
 public:
  // The first choice: it computes the prompt, and the others begin where that ends.
  Session(std::shared_ptr<Job> job, uint64_t id, int64_t context_tokens);

  // Another choice of the request of `first`, with a mask of its own; see another_choice.
  Session(const Session& first, int choice, uint64_t id, std::unique_ptr<LogitMask> mask);

  // Another choice of the same request, whose prompt has just been computed. Errors: of LogitMask::fork.
  Result<std::unique_ptr<Session>> another_choice(int choice, uint64_t id) const;

  uint64_t id() const { return id_; }
  int choice() const { return choice_; }
  const Job& job() const { return *job_; }
  // Until the prompt is computed, the first choice carries the others.
  int other_choices() const { return in_prompt() && choice_ == 0 ? job_->request.choices - 1 : 0; }
  bool cancelled() const;  // by all whom it carries

  // Everything but what a new sequence must compute: prompt, and the answer so far.
  std::span<const TokenKey> tokens() const { return tokens_; }
  int64_t total() const { return static_cast<int64_t>(tokens_.size()); }
  bool in_prompt() const { return usage_.completion_tokens == 0; }
  bool wants_token() const { return answer_limit_ > 0; }

  // The state. None while the session waits.
  std::optional<Conversation> conversation;
  int64_t reserved_tokens = 0;
  int64_t pending() const { return total() - conversation->length(); }  // rows to compute before the next draw
  int64_t rows_until_stop() const;                                      // the same, cut where the state is to be kept
  bool keeps_state_here() const;
  bool decodes() const { return pending() == 1 && !in_prompt(); }  // a row, and the next token of an answer

  // Tokens that the next step tries ahead, and who guesses them; none where nobody does.
  std::optional<Speculator> speculator;
  std::vector<int32_t> draft;
  double draft_charge = 0;  // as Speculator::settle takes it
  // How many may be tried: no further than the answer goes and its memory reaches, nor past where the state is kept.
  int64_t draft_room() const;
  bool draft_by_mtp = false;
  // Guess `k` of a draft, drawn from the drafter's row as the token itself will be from the model's: with the same
  // random number, so that where the two rows agree, so do the tokens. -1 where none can be drawn. Changes nothing.
  int32_t guess(std::span<const float> logits, int k);
  // What came of it, for the usage: before the draws, and with each token that was drafted and drawn.
  void count_drafted() {
    usage_.drafted_tokens += static_cast<int64_t>(draft.size());
    if (draft_by_mtp) usage_.mtp_drafted_tokens += static_cast<int64_t>(draft.size());
  }
  void count_accepted() {
    ++usage_.accepted_tokens;
    if (draft_by_mtp) ++usage_.mtp_accepted_tokens;
  }

  // Sets the state, of which length() tokens are reused, and starts the clocks.
  void begin(Conversation state);

  // Draws from the logits after the last token and reports it.
  void draw(std::span<const float> logits);

  // Ends it, and all whom it carries, without a token.
  void finish(FinishReason reason, std::optional<Error> why = std::nullopt);
  void finish_choice(int choice, Error why) {
    report(choice, {.finish = FinishReason::error, .error = std::move(why)});
  }
  bool finished() const { return finished_; }

  const Usage& usage() const { return usage_; }

 private:
  void report(int choice, TokenEvent event);
  int64_t next_kept_length() const;

  std::shared_ptr<Job> job_;
  int choice_ = 0;
  uint64_t id_ = 0;
  std::vector<TokenKey> tokens_;
  Sampler sampler_;
  std::unique_ptr<LogitMask> mask_;
  int64_t answer_limit_ = 0;
  bool finished_ = false;
  Usage usage_;
  std::optional<Clock::time_point> began_, first_token_;
};

}  // namespace onw
