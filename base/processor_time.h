// What this process has had of the processors.
#pragma once

namespace onw {

// Seconds that all threads of this process together have had a processor, so far. The system counts those of threads on
// other processors late, by some milliseconds.
double processor_seconds();

}  // namespace onw
