// Decoding a recorded text through the engine, with drafts and without, in turns. The recorded tokens are the draws
// whatever the weights say, so random weights are timed at the acceptance that drafts have on a real text.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "targets/executable.h"

namespace onw::cli {

struct ReplayCase {
  int64_t depth = 1;  // tokens of the recording that are the prompt, at least one
  int64_t rows = 1;   // tokens to decode after the first
  int batch = 1;      // times the same recording at once
};

// The median of some rounds.
struct ReplayTiming {
  double plain_seconds = 0;  // of all `rows`
  double seconds = 0;        // the same with drafts
  int64_t steps = 0;         // with drafts, of one recording
  int64_t drafted = 0, accepted = 0;
};

// Errors: invalid_argument where the recording is too short or holds what is no token of the model; the engine's.
Result<ReplayTiming> time_replay(Executable& executable, std::span<const int32_t> recording, const ReplayCase& what);

}  // namespace onw::cli
