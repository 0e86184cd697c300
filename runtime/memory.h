// The books on memory: what states hold, and which context fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/conversation.h"
#include "targets/executable.h"

namespace onw {

// Targets hold K and V in pages of this many positions; memory is booked, and asked for, in whole pages.
inline constexpr int64_t kPageTokens = 256;
inline int64_t whole_pages(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens * kPageTokens; }

// Bytes of the state of one sequence of `tokens`, in whole pages.
int64_t state_bytes(const Executable& executable, int64_t tokens);

// Bytes that the states of `conversations` hold together: pages that forks share count once.
int64_t state_bytes(const Executable& executable, std::vector<const Conversation*> conversations);

struct ContextChoice {
  int64_t tokens = 0;
  std::string reason;  // "the model's", "what memory allows", "the default", "as asked"
};

// The context of an engine with `memory_bytes` for everything: as asked, or for `asked` 0 the least of the model's,
// what memory allows for one sequence, and 32768. Errors: invalid_argument (more than the model has), out_of_memory
// (says what is needed, what there is, and which context would fit).
Result<ContextChoice> choose_context(const Executable& executable, int64_t asked, int64_t memory_bytes);

}  // namespace onw
