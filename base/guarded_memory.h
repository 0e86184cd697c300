// Memory for tests that ends at a page nobody may touch: reading or writing one byte too far crashes at once.
#pragma once

#include <cstddef>
#include <span>

namespace onw {

class GuardedMemory {
 public:
  // `bytes` zeroed bytes, the last one just before the guard page. Aligned as well as `bytes` is, up to a page.
  explicit GuardedMemory(size_t bytes);
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace onw
