// A lock that processes share by a file. The system lets go of it when its process ends, however it ends.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace onw {

class FileLock {
 public:
  // Makes the file where it is missing. `acquire` waits; `try_acquire` gives a lock that is not held where another
  // process has it. Errors: io.
  static Result<FileLock> acquire(const std::filesystem::path& path);
  static Result<FileLock> try_acquire(const std::filesystem::path& path);

  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  bool held() const { return fd_ >= 0; }

 private:
  static Result<FileLock> lock(const std::filesystem::path& path, int operation);

  int fd_ = -1;
};

}  // namespace onw
