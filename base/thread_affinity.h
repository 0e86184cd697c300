#pragma once

namespace onw {

// Binds the calling thread to one CPU, by the system's number; nothing happens where the system refuses.
void keep_thread_on(int cpu);

// The calling thread takes a processor only where few others want it, from now on.
void yield_to_others();

}  // namespace onw
