#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/checked.h"
#include "base/huge_memory.h"
#include "base/result.h"

namespace onw {
namespace {
constexpr int64_t kHugePage = 2 << 20;
}

HugeMemory::HugeMemory(size_t bytes) : size_(bytes) {
  const auto whole = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kHugePage));
  data_ = static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole));
  CHECK(data_ != nullptr);
  madvise(data_, whole, MADV_HUGEPAGE);
  std::fill_n(data_, whole, std::byte{0});
}

HugeMemory::~HugeMemory() { std::free(data_); }

}  // namespace onw
