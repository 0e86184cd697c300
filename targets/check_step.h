// The rules of Row and Step, checked in one place for every target.
#pragma once

#include "targets/executable.h"

namespace onw {

// Whether `step` may run: at least one row and at most info.max_step_rows; each sequence exists once and has rows; the
// rows of a sequence are adjacent and count up from its length; tokens are in the vocabulary (or an embedding of
// `hidden` values stands in); a hidden state comes along where, and only where, the model carries one; a short head
// exists where one is asked for; without `mixes` one sequence only. Errors: invalid_argument naming the row,
// context_overflow.
Result<void> check_step(const Step& step, const ExecutableInfo& info, bool mixes);

}  // namespace onw
