// One run of addresses in which files and plain memory lie side by side: for who takes one pointer to all of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace onw {

class AddressRange {
 public:
  // Addresses only: no memory is used, and touching them is a fault until something lies there. Errors: out_of_memory.
  static Result<AddressRange> reserve(size_t bytes);

  AddressRange() = default;
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  ~AddressRange();

  // The file's first `bytes` bytes, read-only, at `at`, a multiple of the page size. Errors: io.
  Result<void> map_file(const std::filesystem::path& path, size_t at, size_t bytes);
  // Memory of zeros at `at`, a multiple of the page size. Errors: out_of_memory.
  Result<std::span<std::byte>> add_memory(size_t at, size_t bytes);
  // Gives the pages of a mapped file back to the system, which reads them again when they are touched.
  void drop_file_pages(size_t at, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

inline constexpr size_t kPageBytes = 4096;

}  // namespace onw
