// What lies in the cache, as onw list and onw rm see it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "targets/openvino/blob_store.h"

namespace onw::cli {

// One thing in the cache. Its texts come from files that anybody may have written.
struct Kept {
  std::string kind;  // "layout", "compiled graph", "damaged graph", "table", "unknown"
  std::string model = {}, what = {};
  std::string trouble = {};  // what is wrong with it; empty: nothing
  std::string unused = {};   // why nobody will use it; empty: somebody may
  int64_t bytes = 0;         // on the disk
  std::filesystem::file_time_type used = {};
};

// Errors: io.
Result<std::vector<Kept>> kept_in_cache();

// The build of OpenVINO that is here; empty where there is none.
std::string openvino_here();

enum class CacheShare {
  unused,    // of models that are gone; compiled graphs of another OpenVINO; what is damaged; what is not onw's
  of_model,  // compiled graphs and layouts of one model
  all
};
// What `remove_from_cache` would free. Errors: io.
Result<int64_t> cached_bytes(CacheShare share, const std::string& model);
// Returns the bytes that are free again. What a running onw has open stays valid for it. Errors: io.
Result<int64_t> remove_from_cache(CacheShare share, const std::string& model);

// Layouts and compiled graphs of a model that is gone from this folder. Returns the bytes that are free again. Errors:
// io.
Result<int64_t> remove_cached_of(const std::filesystem::path& model_folder);

// Whose layouts and compiled graphs there are, by name. Errors: io.
Result<std::vector<std::string>> cached_models();

}  // namespace onw::cli
