// A published model that is named where a converted one is wanted: converted the first time, found afterwards.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "convert/convert.h"

namespace onw {

// The model folder of `source` (a .gguf file, or a Hugging Face folder) below `models`, made where it is missing or
// where the source has changed since (path, size, modification time), or where the options differ. Other processes that
// ask for the same wait for it. `options.replace` and the provenance's key are set here. Errors: those of convert.
Result<std::filesystem::path> convert_once(const std::filesystem::path& source, const std::filesystem::path& models,
                                           ConvertOptions options, const ConvertObserver& observer = {});

}  // namespace onw
