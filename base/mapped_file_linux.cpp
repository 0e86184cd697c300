#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/mapped_file.h"

namespace onw {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO without a writer would wait
  if (fd < 0) {
    const int e = errno;
    return error(e == ENOENT ? Code::not_found : Code::io, "{}: cannot open: {}", path.string(), std::strerror(e));
  }
  struct stat info = {};
  MappedFile file;
  file.path_ = path;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return error(Code::io, "{}: not a regular file. Give a file, or the folder that holds it", path.string());
  }
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    const int e = errno;
    if (data == MAP_FAILED) {
      ::close(fd);
      file.size_ = 0;
      return error(Code::io, "{}: cannot map {} bytes: {}", path.string(), info.st_size, std::strerror(e));
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void MappedFile::advise_huge_pages() const {
  if (data_ == nullptr) return;
  ::madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
}

}  // namespace onw
