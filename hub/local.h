// The models on this machine: folders below $ONW_HOME/models, found without any connection.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

// A model's folder is `models/NAME` or `models/ORG/NAME`, and holds engine.json, which is written last.
struct LocalModel {
  std::string name;  // "name" or "org/name"
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::filesystem::file_time_type modified;
};

// Below the home folder.
std::filesystem::path models_folder(const std::filesystem::path& home);

// Bytes of the files below a folder; what cannot be read does not count.
int64_t folder_bytes(const std::filesystem::path& folder);

// Whether `text` can name a model: one or two plain parts, neither of which leads elsewhere.
bool is_model_name(std::string_view text);

// Every finished model, by name. A folder that does not exist holds none. Errors: io.
Result<std::vector<LocalModel>> list_models(const std::filesystem::path& models);

// The model of that name; upper and lower case may differ where only one fits, and the part before '/' may be left out
// where the rest is unique, and so may what follows a '.' ("Name" for Name.Q4_1). Errors: not_found (says which there
// are), invalid_argument (several fit).
Result<LocalModel> find_model(const std::filesystem::path& models, std::string_view name);

// Removes a model as a whole: it is gone at once, before its files are. Returns the bytes that are free again. Errors:
// not_found, invalid_argument, io.
Result<int64_t> remove_model(const std::filesystem::path& models, std::string_view name);

}  // namespace onw
