// Decoding a recorded text through the engine, with drafts and without, in turns. The recorded tokens are the draws
// whatever the weights say, so random weights are timed at the acceptance that drafts have on a real text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "targets/executable.h"

namespace onw::cli {

struct ReplayCase {
  int64_t depth = 1;  // tokens of the recording that are the prompt, at least one
  int64_t rows = 1;   // tokens to decode after the first
  int batch = 1;      // times the same recording at once
};

// Who drafts. The layer of a model with random weights guesses nothing, so its guesses may be replaced: it computes all
// that it would, and then guess k is the recorded token in accept[k] of 100 cases (the last number holds from there on;
// drawn from a generator that begins anew with each case), else another token.
struct ReplayDrafts {
  bool lookup = true;
  bool mtp = true;
  std::vector<int64_t> accept = {};  // percent; empty: the layer's own guesses
};

// The median of some rounds.
struct ReplayTiming {
  double plain_seconds = 0;  // of all `rows`
  double seconds = 0;        // the same with drafts
  int64_t steps = 0;         // with drafts, of one recording
  int64_t drafted = 0, accepted = 0;
  int64_t mtp_drafted = 0, mtp_accepted = 0;  // of them
  // Of all rounds, by how many guesses of the layer were before: judged ones, and right ones.
  std::array<int64_t, 8> mtp_judged{}, mtp_right{};
};

// Errors: invalid_argument where the recording is too short or holds what is no token of the model, or guesses are to
// be replaced where there is no layer that makes some; the engine's.
Result<ReplayTiming> time_replay(Executable& executable, std::span<const int32_t> recording, const ReplayCase& what,
                                 const ReplayDrafts& drafts);

}  // namespace onw::cli
