// How much memory this process may still use.
#pragma once

#include <cstdint>

namespace onw {

// Bytes that can be allocated without swapping: what the machine has available, and what the limits of the process's
// control groups (v1 and v2) leave, whichever is less. Memory that only caches files counts as available.
int64_t available_memory_bytes();

}  // namespace onw
