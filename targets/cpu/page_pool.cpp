#include "targets/cpu/page_pool.h"

#include <cstdlib>
#include <mutex>

#include "base/checked.h"
#include "base/huge_memory.h"

namespace onw::cpu {
namespace {

constexpr int64_t kHuge = static_cast<int64_t>(kHugePageBytes);
constexpr int64_t kMostHugePages = 8;

}  // namespace

class PagePool::Slab {
 public:
  Slab(std::byte* memory, int64_t page_bytes) : memory_(memory), page_bytes_(page_bytes) {
    for (int64_t n = slab_bytes(page_bytes) / page_bytes; n-- > 0;) free_.push_back(memory + n * page_bytes);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() { std::free(memory_); }

  int64_t page_bytes() const { return page_bytes_; }

  // Null where all are taken.
  std::byte* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    std::byte* page = free_.back();
    free_.pop_back();
    return page;
  }
  void give_back(std::byte* page) {
    const std::lock_guard lock(mutex_);
    free_.push_back(page);
  }

 private:
  std::byte* memory_;
  int64_t page_bytes_;
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

int64_t slab_bytes(int64_t page_bytes) {
  for (int64_t n = 1; n <= kMostHugePages; ++n)
    if (const int64_t bytes = n * kHuge, used = bytes / page_bytes * page_bytes; used * 50 >= bytes * 49) return bytes;
  return round_up(page_bytes, kHuge) * (page_bytes > kMostHugePages * kHuge ? 1 : kMostHugePages);
}

Result<Page> PagePool::allocate(int64_t bytes) {
  bytes = round_up(bytes, 64);
  const auto page_of = [](const std::shared_ptr<Slab>& slab, std::byte* at) {
    return Page(at, [slab](std::byte* p) { slab->give_back(p); });
  };
  std::erase_if(slabs_, [](const auto& slab) { return slab.expired(); });
  for (const auto& held : slabs_) {
    const auto slab = held.lock();
    if (slab == nullptr || slab->page_bytes() != bytes) continue;
    if (std::byte* at = slab->take(); at != nullptr) return page_of(slab, at);
  }
  const auto whole = static_cast<size_t>(slab_bytes(bytes));
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, whole));
  if (memory == nullptr)
    return error(Code::out_of_memory,
                 "no memory for {} bytes of key-value cache. Use a shorter context, or fewer conversations at once.",
                 whole);
  advise_huge_pages({memory, whole});
  const auto slab = std::make_shared<Slab>(memory, bytes);
  slabs_.push_back(slab);
  return page_of(slab, slab->take());
}

int64_t PagePool::slab_bytes_held() const {
  int64_t bytes = 0;
  for (const auto& held : slabs_)
    if (const auto slab = held.lock()) bytes += slab_bytes(slab->page_bytes());
  return bytes;
}

}  // namespace onw::cpu
