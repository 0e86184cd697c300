#include "store/cache_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_lock.h"
#include "base/memory_file.h"
#include "base/output_file.h"
#include "graph/json.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";

fs::path with_extension(const fs::path& file, std::string_view extension) {
  return fs::path(file).replace_extension(extension);
}

std::vector<StoredWeight> listed(const std::vector<WeightUnit>& units) {
  std::vector<StoredWeight> all;
  for (const WeightUnit& u : units) all.insert(all.end(), u.weights.begin(), u.weights.end());
  return all;
}

// The entry as it is on the disk: complete, and with the sampled blocks that its note tells of.
Result<WeightFile> open_entry(const fs::path& file, const std::vector<WeightUnit>& units) {
  auto opened = WeightFile::open(file, listed(units));
  RETURN_IF_ERROR(opened);
  const auto note = read_json_file(with_extension(file, ".json"));
  RETURN_IF_ERROR(note);
  if (find_string(*note, "sampled") != opened->sampled_digest())
    return error(Code::digest_mismatch, "{}: not the bytes that were written", file.string());
  std::error_code ignored;  // a cache that cannot be written is still a cache
  fs::last_write_time(with_extension(file, ".json"), fs::file_time_type::clock::now(), ignored);
  return opened;
}

Result<WeightFile> make_in_memory(const CacheRequest& request, const Error& why) {
  spdlog::warn("{}. Going on without the cache: this start uses {} MB of memory for it, and so will the next",
               why.message, plan_weight_file(request.units).file_bytes >> 20);
  auto memory = MemoryFile::create();
  RETURN_IF_ERROR(memory);
  auto writer = WeightFileWriter::open(memory->path(), {}, request.units, request.digest);
  RETURN_IF_ERROR(writer);
  RETURN_IF_ERROR(request.fill(*writer));
  RETURN_IF_ERROR(writer->finish());
  return WeightFile::open(memory->path(), listed(request.units));
}

// Whether `code` is about the disk, not about the weights.
bool is_about_the_disk(Code code) { return code == Code::no_space || code == Code::io; }

}  // namespace

std::string why_unused(const CacheEntry& entry) {
  std::error_code failed;
  const bool gone = !entry.model_folder.empty() && !fs::exists(entry.model_folder, failed) && !failed;
  return gone ? "its model is gone" : "";
}

CacheStore::CacheStore(fs::path folder, int64_t cap_bytes) : folder_(std::move(folder)), cap_bytes_(cap_bytes) {}

Result<WeightFile> CacheStore::weights(const CacheRequest& request) const {
  Digest hash;
  hash.add(request.digest);
  hash.add(plan_weight_file(request.units).header);
  const fs::path file = folder_ / (hash.hex().substr(0, 32) + std::string(kExtension));
  if (auto there = open_entry(file, request.units)) {
    adopt(request, file);
    return there;
  }
  auto made = make(request, file);
  if (made || !is_about_the_disk(made.error().code)) return made;
  return make_in_memory(request, made.error());
}

// An entry whose model was moved, or is a copy of one that went, is this model's now. Best effort: nothing depends on
// it but what onw rm --cache --unused removes.
void CacheStore::adopt(const CacheRequest& request, const fs::path& file) {
  auto note = read_json_file(with_extension(file, ".json"));
  std::error_code failed;
  if (!note || request.model_folder.empty()) return;
  const fs::path known = find_string(*note, "model_folder").value_or("");
  if (!known.empty() && fs::exists(known, failed)) return;
  (*note)["model"] = request.model;
  (*note)["model_folder"] = request.model_folder.string();
  (void)write_file_atomically(with_extension(file, ".json"), dump_json(*note));
}

Result<WeightFile> CacheStore::make(const CacheRequest& request, const fs::path& file) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", folder_.string(), failed.message());
  const auto lock = FileLock::acquire(with_extension(file, ".lock"));
  RETURN_IF_ERROR(lock);
  if (auto there = open_entry(file, request.units)) return there;  // another process made it while we waited

  const int64_t bytes = plan_weight_file(request.units).file_bytes;
  RETURN_IF_ERROR(prune(std::max<int64_t>(0, cap_bytes_ - bytes)));
  const fs::path partial = with_extension(file, ".partial"), journal = with_extension(file, ".journal");
  RETURN_IF_ERROR(require_free_space(folder_, bytes - disk_bytes(partial).value_or(0), "The cache of weights"));
  auto writer = WeightFileWriter::open(partial, journal, request.units, request.digest);
  RETURN_IF_ERROR(writer);
  RETURN_IF_ERROR(request.fill(*writer));
  const auto digest = writer->finish();
  RETURN_IF_ERROR(digest);
  auto written = WeightFile::open(partial, listed(request.units));
  RETURN_IF_ERROR(written);
  const nlohmann::json note = {{"model", request.model},
                               {"model_folder", request.model_folder.string()},
                               {"weights", request.digest},
                               {"sha256", *digest},
                               {"sampled", written->sampled_digest()}};
  RETURN_IF_ERROR(write_file_atomically(with_extension(file, ".json"), dump_json(note)));
  RETURN_IF_ERROR(rename_durably(partial, file));
  fs::remove(journal, failed);
  return WeightFile::open(file, listed(request.units));
}

Result<std::vector<CacheEntry>> CacheStore::entries() const {
  std::vector<CacheEntry> found;
  std::error_code failed;
  if (!fs::exists(folder_, failed)) return found;
  for (const auto& item : fs::directory_iterator(folder_, failed)) {
    if (item.path().extension() != kExtension) continue;
    CacheEntry entry{.file = item.path()};
    entry.bytes = static_cast<int64_t>(item.file_size(failed));
    entry.used = fs::last_write_time(with_extension(item.path(), ".json"), failed);
    if (failed) entry.used = fs::file_time_type::min();  // without its note an entry is of no use
    if (const auto note = read_json_file(with_extension(item.path(), ".json"))) {
      entry.model = find_string(*note, "model").value_or("");
      entry.model_folder = find_string(*note, "model_folder").value_or("");
    }
    found.push_back(std::move(entry));
  }
  std::ranges::sort(found, std::ranges::greater(), &CacheEntry::used);
  return found;
}

Result<int64_t> CacheStore::remove_if(const std::function<bool(const CacheEntry&)>& goes) const {
  auto all = entries();
  RETURN_IF_ERROR(all);
  int64_t freed = 0;
  for (const CacheEntry& entry : *all) {
    if (!goes(entry)) continue;
    std::error_code failed;
    for (const char* extension : {".safetensors", ".json"}) fs::remove(with_extension(entry.file, extension), failed);
    if (failed) return error(Code::io, "{}: cannot remove: {}", entry.file.string(), failed.message());
    freed += entry.bytes;
  }
  return freed;
}

Result<int64_t> CacheStore::prune(int64_t keep_bytes) const {
  int64_t kept = 0;
  return remove_if([&](const CacheEntry& entry) {
    if (kept + entry.bytes > keep_bytes) return true;
    kept += entry.bytes;
    return false;
  });
}

}  // namespace onw
