#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/address_range.h"

namespace onw {

Result<AddressRange> AddressRange::reserve(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return error(Code::out_of_memory, "no {} bytes of addresses are left: {}", bytes, std::strerror(errno));
  AddressRange range;
  range.data_ = static_cast<std::byte*>(data);
  range.size_ = bytes;
  return range;
}

AddressRange::AddressRange(AddressRange&& other) noexcept { *this = std::move(other); }

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<void> AddressRange::map_file(const std::filesystem::path& path, size_t at, size_t bytes) {
  CHECK(at % kPageBytes == 0 && at <= size_ && bytes <= size_ - at);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(Code::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  const void* mapped = ::mmap(data_ + at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  const int e = errno;
  ::close(fd);
  if (mapped == MAP_FAILED)
    return error(Code::io, "{}: cannot map {} bytes: {}", path.string(), bytes, std::strerror(e));
  return {};
}

Result<std::span<std::byte>> AddressRange::add_memory(size_t at, size_t bytes) {
  CHECK(at % kPageBytes == 0 && at <= size_ && bytes <= size_ - at);
  if (::mprotect(data_ + at, bytes, PROT_READ | PROT_WRITE) != 0)
    return error(Code::out_of_memory, "no memory for {} bytes of constants: {}", bytes, std::strerror(errno));
  return std::span(data_ + at, bytes);
}

void AddressRange::drop_file_pages(size_t at, size_t bytes) const { ::madvise(data_ + at, bytes, MADV_DONTNEED); }

}  // namespace onw
