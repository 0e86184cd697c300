#include "convert/convert_once.h"

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_lock.h"
#include "graph/json.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

// Whether `folder` was made from that key. Only engine.json is read: opening the folder checks it.
bool has_key(const fs::path& folder, const std::string& key) {
  if (!is_model_folder(folder)) return false;
  const auto root = read_json_file(folder / kEngineFile);
  const auto* provenance = root ? find_object(*root, "provenance") : nullptr;
  return provenance != nullptr && find_string(*provenance, "source_key") == key;
}

// A folder's time changes with every file in it: its own files stand for it.
Result<std::string> source_state(const fs::path& source) {
  std::error_code failed;
  if (!fs::is_directory(source, failed)) return file_fingerprint(source);
  const auto opened = open_source(source);
  RETURN_IF_ERROR(opened);
  return (*opened)->fingerprint();
}

}  // namespace

Result<fs::path> convert_once(const fs::path& source, const fs::path& models, ConvertOptions options,
                              const ConvertObserver& observer) {
  const auto state = source_state(source);
  std::error_code failed;
  if (!state && !fs::exists(source, failed))
    return error(Code::not_found, "{}: no such file. Check the path, or fetch a model: onw pull", source.string());
  RETURN_IF_ERROR(state);
  const std::string wanted =
      fmt::format("{}{} {}", *state, options.made_for, options.format ? name(*options.format) : "default");
  const std::string key = sha256_hex(wanted);

  fs::create_directories(models, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", models.string(), failed.message());
  const fs::path named = source.has_filename() ? source : source.parent_path();
  const std::string stem = named.extension() == ".gguf" ? named.stem().string() : named.filename().string();
  const fs::path lock_file = models / fmt::format(".{}.lock", stem);
  auto lock = FileLock::try_acquire(lock_file);
  if (lock && !lock->held()) {  // another process makes it
    if (options.waiting) options.waiting();
    lock = FileLock::acquire(lock_file);
  }
  RETURN_IF_ERROR(lock);
  // The plain name where it is free or ours; else (another file of that name, other options) with the key.
  for (const fs::path& folder : {models / stem, models / fmt::format("{}-{}", stem, key.substr(0, 8))}) {
    if (has_key(folder, key)) return folder;
    if (fs::exists(folder, failed)) continue;
    options.replace = false;
    options.provenance.source_key = key;
    const auto made = convert(source, folder, options, observer);
    RETURN_IF_ERROR(made);
    return folder;
  }
  return error(Code::io, "{}: is in the way and no model. Remove it",
               (models / fmt::format("{}-{}", stem, key.substr(0, 8))).string());
}

}  // namespace onw
