#pragma once

namespace onw {

// Binds the calling thread to one CPU, by the system's number; nothing happens where the system refuses.
void keep_thread_on(int cpu);

// From now on the calling thread gets a tenth of a processor where others want it, all of it where not.
void yield_to_others();

}  // namespace onw
