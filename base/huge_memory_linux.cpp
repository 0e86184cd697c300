#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "base/huge_files.h"
#include "base/huge_memory.h"
#include "base/result.h"

namespace onw {
void advise_huge_pages(std::span<std::byte> memory) { madvise(memory.data(), memory.size(), MADV_HUGEPAGE); }

namespace {

// Anonymous memory that begins at a multiple of kHugePageBytes; null where there is none.
std::byte* map_aligned(size_t bytes) {
  void* all = ::mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(all);
  const size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, kHugePageBytes - before);
  return begin + before;
}

}  // namespace

bool replace_by_huge_pages(std::span<const std::byte> mapped) {
  CHECK(reinterpret_cast<uintptr_t>(mapped.data()) % kHugePageBytes == 0 && mapped.size() % kHugePageBytes == 0);
  if (mapped.empty()) return true;
  std::byte* copy = map_aligned(mapped.size());
  if (copy == nullptr) return false;
  advise_huge_pages({copy, mapped.size()});
  std::memcpy(copy, mapped.data(), mapped.size());
  const auto huge = huge_page_bytes({copy, mapped.size()});
  const bool granted = huge && huge->anonymous >= static_cast<int64_t>(mapped.size() / 2);
  // The system takes one mapping's place by the other's in one step: a reader waits, and finds one or the other.
  if (granted && ::mprotect(copy, mapped.size(), PROT_READ) == 0 &&
      ::mremap(copy, mapped.size(), mapped.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
               const_cast<std::byte*>(mapped.data())) != MAP_FAILED)
    return true;
  ::munmap(copy, mapped.size());
  return false;
}

HugeMemory::HugeMemory(size_t bytes, size_t least) : size_(bytes) {
  const auto whole_pages = [](size_t n) {
    return static_cast<size_t>(round_up(static_cast<int64_t>(n), static_cast<int64_t>(kHugePageBytes)));
  };
  const auto allocate = [&] { return static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, whole_pages(size_))); };
  data_ = allocate();
  while (data_ == nullptr && least > 0 && size_ / 2 >= least) {
    size_ /= 2;
    data_ = allocate();
  }
  CHECK(data_ != nullptr);
  const size_t whole = whole_pages(size_);
  advise_huge_pages({data_, whole});
  std::fill_n(data_, whole, std::byte{0});
}

HugeMemory::~HugeMemory() { std::free(data_); }

}  // namespace onw
