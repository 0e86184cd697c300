// A library of the system's or of another project, loaded while the program runs.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace onw {

class SharedLibrary {
 public:
  // `path` may be a plain name, which the system then searches. Once loaded it stays until the program ends: such
  // libraries keep threads and destructors that unloading would pull the code from under. Errors: not_found where there
  // is no such file, unsupported where it cannot be loaded, both with the system's own reason.
  static Result<SharedLibrary> open(const std::filesystem::path& path);

  // Null where the library has no such symbol.
  void* symbol(const std::string& name) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  void* handle_ = nullptr;
};

}  // namespace onw
