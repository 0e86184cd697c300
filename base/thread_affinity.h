#pragma once

namespace onw {

// Binds the calling thread to one CPU, by the system's number; nothing happens where the system refuses.
void keep_thread_on(int cpu);

}  // namespace onw
