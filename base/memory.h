// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <string>

namespace onw {

// Bytes that can be allocated without swapping: what the machine has available, and what the limits of the process's
// control groups (v1 and v2) leave, whichever is less. Memory that only caches files counts as available.
int64_t available_memory_bytes();

// What the machine has in all; 0 where that is not known.
int64_t total_memory_bytes();

// The most memory that this process has had resident so far; 0 where that is not known.
int64_t peak_memory_bytes();

// What this process has resident now; 0 where that is not known.
int64_t resident_memory_bytes();

// When the system gives huge pages: "always", "madvise" (where asked for), "never"; empty where that is not known.
std::string huge_page_mode();

// What lies in huge pages on the whole machine; -1 where the system does not say.
struct HugePageUse {
  int64_t anonymous_bytes = -1;
  int64_t cached_file_bytes = -1;
  int64_t mapped_file_bytes = -1;  // of those: by some process
};
HugePageUse huge_page_use();

// Hands freed memory back to the system, which the allocator else keeps for later.
void give_back_memory();

}  // namespace onw
