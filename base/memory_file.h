// A file that lives in memory only: what stands in for the disk where the disk is full.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace onw {

class MemoryFile {
 public:
  // Errors: out_of_memory, unsupported.
  static Result<MemoryFile> create();

  MemoryFile() = default;
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;
  ~MemoryFile();

  // Opens like any other file while this object lives; what was mapped from it stays valid after that.
  std::filesystem::path path() const;
  // The same for other processes of this user.
  std::filesystem::path path_for_others() const;

 private:
  int fd_ = -1;
};

}  // namespace onw
