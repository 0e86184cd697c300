// Zeroed memory in huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <span>

namespace onw {

class HugeMemory {
 public:
  // Aligned to 2 MiB. Aborts where the system has no memory: for benchmarks and scratch of known size.
  explicit HugeMemory(size_t bytes);
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  ~HugeMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace onw
