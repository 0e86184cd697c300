// What lies in a published file: a .gguf or .safetensors.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace onw::cli {

bool is_published_file(const std::filesystem::path& path);

// A table, or JSON. Errors: those of the readers, and of stdout.
Result<void> inspect_file(const std::filesystem::path& path, bool json);

}  // namespace onw::cli
