// Small text files of a model folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/lfs_pointer.h"
#include "base/mapped_file.h"
#include "base/result.h"

namespace onw {

// Errors: not_found, io, and bad_format for a Git LFS pointer.
inline Result<std::string> read_text_file(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return failure(std::move(file));
  const auto bytes = file->bytes();
  if (is_lfs_pointer(bytes))
    return error(Code::bad_format, "{}: a Git LFS pointer, not the file itself. Fetch it with 'git lfs pull'",
                 path.string());
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace onw
