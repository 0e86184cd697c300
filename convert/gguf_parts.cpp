#include "convert/gguf_parts.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxParts = 9999;

// NAME of "NAME-00002-of-00003.gguf"; empty where the file is not named so.
std::string split_name(const fs::path& path, int64_t count) {
  const std::string file = path.filename().string();
  const std::string ending = fmt::format("-of-{:05}.gguf", count);
  constexpr size_t kNumber = 6;  // "-00002"
  if (!file.ends_with(ending) || file.size() <= ending.size() + kNumber) return {};
  return file.substr(0, file.size() - ending.size() - kNumber);
}

}  // namespace

Result<GgufParts> GgufParts::open(const fs::path& path) {
  GgufParts parts;
  auto named = GgufFile::open(path);
  RETURN_IF_ERROR(named);
  const int64_t count = named->integer("split.count").value_or(1);
  if (count <= 1) {
    parts.files_.push_back(std::move(*named));
    return parts;
  }
  const std::string name = split_name(path, count);
  if (name.empty() || count > kMaxParts)
    return error(Code::bad_format,
                 "{}: one of {} parts, but not named NAME-00001-of-{:05}.gguf. Give the parts their published names",
                 path.string(), count, count);
  for (int64_t i = 1; i <= count; ++i) {
    const fs::path part = path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name, i, count);
    auto file = GgufFile::open(part);
    if (!file && file.error().code == Code::not_found)
      return error(Code::not_found, "{}: part {} of {} is missing. Download it too", part.string(), i, count);
    RETURN_IF_ERROR(file);
    if (file->integer("split.count") != count || file->integer("split.no") != i - 1)
      return error(Code::bad_format, "{}: says that it is part {} of {}, its name says {} of {}. Download it again",
                   part.string(), file->integer("split.no").value_or(-1) + 1, file->integer("split.count").value_or(1),
                   i, count);
    parts.files_.push_back(std::move(*file));
  }
  return parts;
}

GgufParts::Found GgufParts::find(std::string_view name) const {
  for (const GgufFile& file : files_)
    if (const GgufTensor* tensor = file.find(name)) return {&file, tensor};
  return {};
}

}  // namespace onw
