#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_lock.h"

namespace onw {

namespace {

// Whether the open file is the one that has this name now.
bool is_at(const std::filesystem::path& path, int fd) {
  struct stat named = {}, open = {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

}  // namespace

Result<FileLock> FileLock::lock(const std::filesystem::path& path, int operation) {
  FileLock lock;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return error(Code::io, "{}: cannot open the lock: {}", path.string(), std::strerror(errno));
  int failed = 0;
  do {
    failed = ::flock(fd, operation) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == 0 && !is_at(path, fd)) {  // unlinked by whoever held it before: another may lock the new file
    ::close(fd);
    return FileLock::lock(path, operation);
  }
  if (failed == 0) {
    lock.fd_ = fd;
    return lock;
  }
  ::close(fd);
  if (failed == EWOULDBLOCK) return lock;
  return error(Code::io, "{}: cannot lock: {}", path.string(), std::strerror(failed));
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) { return lock(path, LOCK_EX); }
Result<FileLock> FileLock::try_acquire(const std::filesystem::path& path) { return lock(path, LOCK_EX | LOCK_NB); }

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace onw
