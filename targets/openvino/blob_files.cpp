#include "targets/openvino/blob_files.h"

#include <algorithm>
#include <vector>

#include "base/digest.h"
#include "base/mapped_file.h"

namespace onw::openvino {

namespace fs = std::filesystem;

Result<FolderDigest> digest_folder(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(folder, failed); !failed && it != fs::recursive_directory_iterator();
       it.increment(failed))
    if (std::error_code gone; it->is_regular_file(gone)) files.push_back(it->path());
  if (failed) return error(Code::not_found, "{}: cannot be read: {}", folder.string(), failed.message());
  std::ranges::sort(files);
  Digest digest;
  FolderDigest all;
  for (const fs::path& path : files) {
    const auto file = MappedFile::open(path);
    RETURN_IF_ERROR(file);
    digest.add(fmt::format("{}\n{}\n", path.lexically_relative(folder).string(), file->bytes().size()));
    digest.add(file->bytes());
    all.bytes += static_cast<int64_t>(file->bytes().size());
  }
  all.digest = digest.hex();
  return all;
}

}  // namespace onw::openvino
