// A GGUF model in one file or in several: NAME-00001-of-00003.gguf and its siblings, metadata in the first.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/gguf.h"

namespace onw {

class GgufParts {
 public:
  struct Found {
    const GgufFile* file = nullptr;  // null where there is no such tensor
    const GgufTensor* tensor = nullptr;
  };

  // `path` is the file, or any of the parts. Errors: those of GgufFile::open; not_found naming the part that is
  // missing; bad_format where the parts do not belong together.
  static Result<GgufParts> open(const std::filesystem::path& path);

  const GgufFile& first() const { return files_.front(); }
  const std::vector<GgufFile>& files() const { return files_; }
  Found find(std::string_view name) const;

 private:
  std::vector<GgufFile> files_;
};

}  // namespace onw
