// Draws tokens from rows of logits. A draw is a function of the row, the parameters, what the choice has seen, and
// (seed, choice, position): nothing else that runs can change it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "runtime/generate.h"

namespace onw {

// Whether every parameter is in its range; the error names the first that is not.
Result<void> check(const SamplingParams& params, int64_t vocabulary);

struct Draw {
  int32_t id = -1;
  float logprob = 0;              // only where asked
  std::vector<TokenLogprob> top;  // only where asked
};

// A token that may be drawn; `weight` is its logit, later its unscaled probability.
struct Candidate {
  float weight = 0;
  int32_t id = 0;
};

class Sampler {
 public:
  // One choice of one request. `params` are checked; `seed` is theirs or a random one.
  Sampler(SamplingParams params, uint64_t seed, uint32_t choice);

  void see_prompt(std::span<const int32_t> tokens);
  void see_answer(int32_t token);

  // Draws the token at `position` (its index in prompt + answer) from `logits` [vocabulary], all finite.
  // `logprobs` as in GenerateRequest. Errors: numerics (a logit is not finite), internal (the mask allows nothing),
  // and what the mask reports. Does not call see_answer or LogitMask::accept.
  Result<Draw> draw(std::span<const float> logits, int64_t position, LogitMask* mask, int logprobs);

 private:
  void apply_penalties();
  Result<void> apply_mask(LogitMask& mask);
  void gather();
  Result<int32_t> pick(int64_t position);

  SamplingParams params_;
  uint64_t seed_;
  uint32_t choice_;
  std::unordered_map<int32_t, int64_t> seen_;  // token of prompt or answer: how often in the answer
  std::vector<float> logits_;                  // the row, altered
  std::vector<float> probabilities_;           // this and the next two are kept between draws for their memory alone
  std::vector<Candidate> candidates_, kept_;
  std::vector<uint32_t> allowed_;
};

}  // namespace onw
