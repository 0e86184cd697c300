// Whether others wanted our processors.
#pragma once

#include <cstdint>

namespace onw {

// How often, so far, the system took the processor from a thread of this process that was not done.
int64_t preemptions();

}  // namespace onw
