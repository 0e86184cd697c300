// MODEL of the command line: which folder it means.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "convert/convert.h"

namespace onw::cli {

// A model folder, the name of a model in the store, or a published one (a .gguf file, a Hugging Face folder), which is
// converted into the store the first time, with progress on stderr. No connection is made. Errors: those of convert;
// not_found says what would help.
Result<std::filesystem::path> locate_model(const std::string& model);

// The folder with the model's tokenizer and template: a published folder as it is, anything else as locate_model.
Result<std::filesystem::path> locate_tokenizer(const std::string& model);

// What people call the model in `folder`: its name in the store, else the folder's.
std::string model_name(const std::filesystem::path& folder);

// Whether `path` is a published model that was not converted: a .gguf file, or a Hugging Face folder.
bool is_published(const std::filesystem::path& path);

// convert() with its progress on stderr.
Result<ConvertSummary> convert_with_progress(const std::filesystem::path& source, const std::filesystem::path& out,
                                             const ConvertOptions& options);

// --for, --format and --replace; the text side is checked. Errors: usage.
Result<ConvertOptions> convert_options(const Args& args);

}  // namespace onw::cli
