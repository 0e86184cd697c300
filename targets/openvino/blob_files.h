// How the files of the store of blobs are called: the key, and one of these behind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace onw::openvino {

inline constexpr std::string_view kBlob = ".blob", kRecord = ".json", kPartial = ".partial", kLock = ".lock";
// Folders: what a device's plugin keeps of a graph compiled without its weights, and the same while it is written.
inline constexpr std::string_view kFolder = ".weightless", kPartialFolder = ".partial-weightless";

struct FolderDigest {
  int64_t bytes = 0;
  std::string digest;  // of every file's name and bytes
};
// Errors: not_found, io.
Result<FolderDigest> digest_folder(const std::filesystem::path& folder);

}  // namespace onw::openvino
