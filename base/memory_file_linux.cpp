#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory_file.h"

namespace onw {

Result<MemoryFile> MemoryFile::create() {
  MemoryFile file;
  file.fd_ = ::memfd_create("onw", MFD_CLOEXEC);
  if (file.fd_ < 0) return error(Code::out_of_memory, "cannot make a file in memory: {}", std::strerror(errno));
  return file;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::filesystem::path MemoryFile::path_for_others() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_); }

std::filesystem::path MemoryFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

}  // namespace onw
