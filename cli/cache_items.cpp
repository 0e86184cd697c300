#include "cli/cache_items.h"

#include <algorithm>
#include <set>

#include "base/paths.h"
#include "hub/local.h"
#include "runtime/compile_ahead.h"
#include "targets/openvino/find.h"
#include "targets/openvino/runtime.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;
using openvino::BlobItem;

std::string what_of(const openvino::BlobRecord& r) {
  std::string text = fmt::format("{} for {} rows on {}", r.segment, r.rows, r.platform);
  if (r.ended != openvino::Ended::compiled) return fmt::format("{}: {}", text, name(r.ended));
  if (r.self_check && !r.self_check->passed)
    text += ": " + (r.self_check->message.empty() ? "computes something else than the CPU" : r.self_check->message);
  return text;
}

Kept kept_of(const BlobItem& item, const std::string& openvino) {
  Kept k{.bytes = item.bytes, .used = item.used};
  k.kind = item.kind == BlobItem::Kind::whole     ? "compiled graph"
           : item.kind == BlobItem::Kind::damaged ? "damaged graph"
                                                  : "unknown";
  k.trouble = item.trouble;
  if (!item.record) {
    k.what = item.name;
    return k;
  }
  k.model = item.record->model;
  k.what = what_of(*item.record);
  k.unused = openvino::why_unused(*item.record, openvino);
  return k;
}

bool is_unused(const BlobItem& item, const std::string& openvino) {
  return item.kind != BlobItem::Kind::whole || !openvino::why_unused(*item.record, openvino).empty();
}

// Where the model of that name lies; empty where there is none. Two of other owners may have the same last name.
std::string folder_of(const std::string& model) {
  const auto found = find_model(models_folder(home_folder()), model);
  std::error_code failed;
  return found ? fs::weakly_canonical(found->folder, failed).string() : "";
}

bool is_of(const std::string& model, const std::string& folder, const std::string& name, const fs::path& where) {
  return folder.empty() || where.empty() ? name == model : where == folder;
}

// Whether it is in the share; layouts and tables are no items of the store.
std::function<bool(const BlobItem&)> in_share(CacheShare share, const std::string& model) {
  if (share == CacheShare::all) return [](const BlobItem&) { return true; };
  if (share == CacheShare::of_model)
    return [model, folder = folder_of(model)](const BlobItem& item) {
      return item.record && is_of(model, folder, item.record->model, item.record->model_folder);
    };
  return [here = openvino_here()](const BlobItem& item) { return is_unused(item, here); };
}

bool is_in_share(const CacheEntry& layout, CacheShare share, const std::string& model) {
  if (share == CacheShare::unused) return !why_unused(layout).empty();
  return share == CacheShare::all || is_of(model, folder_of(model), layout.model, layout.model_folder);
}

}  // namespace

std::string openvino_here() {
  const auto library = openvino::find_library(openvino::search_places());
  if (!library) return "";
  const auto runtime = openvino::Runtime::load(*library);
  return runtime ? (*runtime)->version() : "";
}

Result<std::vector<Kept>> kept_in_cache() {
  std::vector<Kept> all;
  const auto layouts = layout_cache().entries();
  RETURN_IF_ERROR(layouts);
  for (const auto& entry : *layouts)
    all.push_back({.kind = "layout",
                   .model = entry.model,
                   .unused = why_unused(entry),
                   .bytes = entry.bytes,
                   .used = entry.used});
  const auto blobs = blob_store().items();
  RETURN_IF_ERROR(blobs);
  const std::string here = blobs->empty() ? "" : openvino_here();
  for (const BlobItem& item : *blobs) all.push_back(kept_of(item, here));
  std::error_code failed;
  for (const auto& folder : fs::directory_iterator(cache_folder(), failed)) {
    const std::string name = folder.path().filename().string();
    if (!folder.is_directory(failed) || name == "layouts" || name == "blobs") continue;
    for (const auto& item : fs::directory_iterator(folder.path(), failed))
      if (std::error_code gone; item.is_regular_file(gone))
        all.push_back({.kind = "table",
                       .what = name,
                       .bytes = static_cast<int64_t>(std::max<uintmax_t>(item.file_size(gone) + 1, 1) - 1),
                       .used = item.last_write_time(gone)});
  }
  return all;
}

Result<int64_t> cached_bytes(CacheShare share, const std::string& model) {
  if (share == CacheShare::all) return folder_bytes(cache_folder());
  int64_t bytes = 0;
  const auto layouts = layout_cache().entries();
  RETURN_IF_ERROR(layouts);
  for (const CacheEntry& entry : *layouts)
    if (is_in_share(entry, share, model)) bytes += entry.bytes;
  const auto blobs = blob_store().items();
  RETURN_IF_ERROR(blobs);
  const auto goes = in_share(share, model);
  for (const BlobItem& item : *blobs)
    if (goes(item)) bytes += item.bytes;
  return bytes;
}

Result<int64_t> remove_cached_of(const fs::path& model_folder) {
  std::error_code failed;
  const fs::path folder = fs::weakly_canonical(model_folder, failed);
  auto freed = layout_cache().remove_if([&](const CacheEntry& entry) { return entry.model_folder == folder; });
  RETURN_IF_ERROR(freed);
  const auto graphs = blob_store().remove_if(
      [&](const BlobItem& item) { return item.record && item.record->model_folder == folder.string(); });
  RETURN_IF_ERROR(graphs);
  return *freed + *graphs;
}

Result<std::vector<std::string>> cached_models() {
  const auto all = kept_in_cache();
  RETURN_IF_ERROR(all);
  std::set<std::string> names;
  for (const Kept& k : *all)
    if (!k.model.empty()) names.insert(k.model);
  return std::vector<std::string>(names.begin(), names.end());
}

Result<int64_t> remove_from_cache(CacheShare share, const std::string& model) {
  auto freed = layout_cache().remove_if([&](const CacheEntry& entry) { return is_in_share(entry, share, model); });
  RETURN_IF_ERROR(freed);
  const auto blobs = blob_store().remove_if(in_share(share, model));
  RETURN_IF_ERROR(blobs);
  *freed += *blobs;
  if (share != CacheShare::all) return freed;
  std::error_code failed;
  for (const auto& folder : fs::directory_iterator(cache_folder(), failed)) {
    const std::string name = folder.path().filename().string();
    if (name == "layouts" || name == "blobs") continue;
    const int64_t bytes = folder_bytes(folder.path());
    std::error_code kept;
    if (fs::remove_all(folder.path(), kept); !kept) *freed += bytes;
  }
  return freed;
}

}  // namespace onw::cli
