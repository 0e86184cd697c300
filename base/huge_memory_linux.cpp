#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/checked.h"
#include "base/huge_memory.h"
#include "base/result.h"

namespace onw {
void advise_huge_pages(std::span<std::byte> memory) { madvise(memory.data(), memory.size(), MADV_HUGEPAGE); }

HugeMemory::HugeMemory(size_t bytes) : size_(bytes) {
  const auto whole = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), static_cast<int64_t>(kHugePageBytes)));
  data_ = static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, whole));
  CHECK(data_ != nullptr);
  advise_huge_pages({data_, whole});
  std::fill_n(data_, whole, std::byte{0});
}

HugeMemory::~HugeMemory() { std::free(data_); }

}  // namespace onw
