#include <sys/mman.h>

#include "base/checked.h"
#include "base/guarded_memory.h"
#include "base/result.h"

namespace onw {
namespace {
constexpr int64_t kPage = 4096;
}

GuardedMemory::GuardedMemory(size_t bytes) : size_(bytes) {
  const size_t usable = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kPage));
  void* map = mmap(nullptr, usable + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(map != MAP_FAILED);
  CHECK(mprotect(static_cast<std::byte*>(map) + usable, kPage, PROT_NONE) == 0);
  data_ = static_cast<std::byte*>(map) + usable - bytes;
}

GuardedMemory::~GuardedMemory() {
  const size_t usable = static_cast<size_t>(round_up(static_cast<int64_t>(size_), kPage));
  munmap(data_ + size_ - usable, usable + kPage);
}

}  // namespace onw
