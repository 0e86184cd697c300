// What goes into the engine and what comes out: plain values, shared by chat, server and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/logit_mask.h"

namespace onw {

// How a token is drawn from a row of logits, in this order: repetition, presence and frequency penalties, logit bias,
// mask, temperature, top-k, top-p, min-p. The defaults change nothing: plain sampling at temperature 1.
struct SamplingParams {
  float temperature = 1.0F;         // 0: greedy, ties to the lowest id
  int top_k = 0;                    // the k most likely; 0: off
  float top_p = 1.0F;               // the fewest tokens whose probabilities sum to at least this; 1: off
  float min_p = 0.0F;               // at least this share of the most likely token's probability; 0: off
  float repetition_penalty = 1.0F;  // tokens of prompt and answer: positive logits / this, negative ones * this
  float presence_penalty = 0.0F;    // tokens of the answer: - this, once
  float frequency_penalty = 0.0F;   // tokens of the answer: - this, per occurrence
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the token's logit
  std::optional<uint64_t> seed;                       // same seed, same text, whatever runs beside it; none: random
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one token, at most the context
  SamplingParams sampling;
  int64_t max_tokens = -1;  // -1: until a stop id or the end of the context; 0: only computes the prompt
  std::vector<int32_t> stop_ids;
  int logprobs = -1;  // -1: none; 0: the drawn token's; n: and those of the n most likely
  int choices = 1;    // independent answers to one prompt, which is computed once
  std::unique_ptr<LogitMask> mask;
  bool drafts = true;  // false: no tokens are drafted, whatever the engine may do. Never changes an answer

  // Lengths of the prompt at which a later request is likely to branch off: the end of each message, and where the
  // generation prompt begins. States that cannot be cut back are kept there; free where they can.
  std::vector<int64_t> branch_points;
};

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;  // natural logarithm, of the model's own distribution (before penalties and temperature)
};

enum class FinishReason : uint8_t {
  none,       // more follows
  stop,       // a stop id, which is the event's token
  length,     // max_tokens, or the context is full
  cancelled,  // by cancel(), or the engine ended
  error,      // see TokenEvent::error
};

// Of one choice, up to the event that carries it.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;       // of the prompt, taken from earlier work
  int64_t completion_tokens = 0;   // the stop id counts
  int64_t drafted_tokens = 0;      // guessed ahead, and computed
  int64_t accepted_tokens = 0;     // of them, those that the answer went on with
  int64_t mtp_drafted_tokens = 0;  // of the drafted ones, those that the model's own layer for it guessed
  int64_t mtp_accepted_tokens = 0;
  double queue_seconds = 0;    // from submit to the first step
  double prefill_seconds = 0;  // from the first step to the first token
  double decode_seconds = 0;   // from the first token to this one

  double prefill_tokens_per_s() const {
    return prefill_seconds > 0 ? static_cast<double>(prompt_tokens - reused_tokens) / prefill_seconds : 0;
  }
  double acceptance() const {
    return drafted_tokens > 0 ? static_cast<double>(accepted_tokens) / static_cast<double>(drafted_tokens) : 0;
  }
  double decode_tokens_per_s() const {
    return decode_seconds > 0 ? static_cast<double>(completion_tokens - 1) / decode_seconds : 0;
  }
};

// One token of one choice, or the end of one without a token. Each choice has exactly one event with a finish reason,
// and it is the choice's last.
struct TokenEvent {
  int choice = 0;
  int32_t id = -1;  // -1: no token (only with a finish reason)
  float logprob = 0;
  std::vector<TokenLogprob> top;  // most likely first, ties to the lowest id
  FinishReason finish = FinishReason::none;
  Usage usage;
  std::optional<Error> error;
};

}  // namespace onw
