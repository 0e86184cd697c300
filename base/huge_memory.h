// Zeroed memory in huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <span>

namespace onw {

// Asks for huge pages behind memory that begins at a multiple of kHugePageBytes; advice only.
inline constexpr size_t kHugePageBytes = 2 << 20;
void advise_huge_pages(std::span<std::byte> memory);

// Puts a copy in huge pages in the place of mapped bytes that are only read, whole huge pages of them (address and size
// are multiples of kHugePageBytes). Whoever reads meanwhile sees the same bytes. False, and nothing changed, where the
// system has no memory or no huge pages to give. Unmapping the whole mapping frees the copy.
bool replace_by_huge_pages(std::span<const std::byte> mapped);

class HugeMemory {
 public:
  // Aligned to 2 MiB. Where the system has not so much, half of it and so on, down to `least` bytes (0: `bytes`);
  // aborts where it has not that either: for benchmarks and scratch of known size.
  explicit HugeMemory(size_t bytes, size_t least = 0);
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  ~HugeMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace onw
