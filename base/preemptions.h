// Whether others wanted our processors.
#pragma once

#include <cstdint>

namespace onw {

// How often, so far, the system took the processor from a thread of this process that was not done.
int64_t preemptions();

// Seconds that all threads of this process together have had a processor, so far.
double processor_seconds();

}  // namespace onw
