#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/address_range.h"
#include "base/page_cache.h"

namespace onw {

void drop_from_page_cache(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

void drop_mapped_pages(std::span<const std::byte> mapped) {
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data()), end = begin + mapped.size();
  const uintptr_t first = (begin + kPageBytes - 1) / kPageBytes * kPageBytes, last = end / kPageBytes * kPageBytes;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace onw
