// What lies in a store of blobs, and what of it goes.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "targets/openvino/blob_files.h"
#include "targets/openvino/blob_store.h"

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;

bool is_partial(const fs::path& path) { return path.extension() == kPartial || path.extension() == kPartialFolder; }

bool is_ours(const fs::path& path) {
  const std::string extension = path.extension().string();
  std::error_code failed;
  if (extension == kFolder || extension == kPartialFolder) return fs::is_directory(path, failed);
  return (extension == kBlob || extension == kPartial || extension == kRecord) && fs::is_regular_file(path, failed);
}

// "KEY.json.partial" is a record that is just written.
std::string key_of(fs::path name) {
  while (name.has_extension()) name = name.stem();
  return name.string();
}

// 0 where it is gone or cannot be read.
int64_t size_of(const fs::path& path) {
  std::error_code failed;
  const auto bytes = fs::file_size(path, failed);
  return failed ? 0 : static_cast<int64_t>(bytes);
}

int64_t size_of_all(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return size_of(path);
  int64_t bytes = 0;
  for (auto it = fs::recursive_directory_iterator(path, failed); !failed && it != fs::recursive_directory_iterator();
       it.increment(failed))
    if (std::error_code other; it->is_regular_file(other)) bytes += size_of(it->path());
  return bytes;
}

// A record as the folder bears it out.
BlobItem item_of(BlobRecord record, const fs::path& folder) {
  const fs::path blob = folder / (record.key + std::string(record.without_weights ? kFolder : kBlob));
  BlobItem item{
      .name = record.key, .bytes = size_of(folder / (record.key + std::string(kRecord))), .used = record.used};
  std::error_code failed;
  const bool there = fs::exists(blob, failed);
  const int64_t bytes = there ? size_of_all(blob) : 0;
  item.bytes += bytes;
  if (record.ended == Ended::compiled && (!there || bytes != record.bytes)) {
    item.kind = BlobItem::Kind::damaged;
    item.trouble = there ? "not as long as it was written" : "its file is missing";
  }
  item.record = std::move(record);
  return item;
}

}  // namespace

std::string why_unused(const BlobRecord& record, std::string_view openvino) {
  if (!openvino.empty() && record.openvino != openvino) return "of another OpenVINO";
  std::error_code failed;
  if (!record.model_folder.empty() && !fs::exists(record.model_folder, failed) && !failed) return "its model is gone";
  return "";
}

Result<std::vector<BlobItem>> BlobStore::items() const {
  const auto records = entries();
  RETURN_IF_ERROR(records);
  std::vector<BlobItem> all, broken;
  std::set<std::string> known;
  for (const BlobRecord& record : *records) {
    known.insert(record.key);
    BlobItem item = item_of(record, folder_);
    (item.kind == BlobItem::Kind::whole ? all : broken).push_back(std::move(item));
  }
  std::ranges::move(broken, std::back_inserter(all));
  std::error_code failed;
  for (auto it = fs::directory_iterator(folder_, failed); !failed && it != fs::directory_iterator();
       it.increment(failed)) {
    const fs::path& path = it->path();
    if (path.extension() == kLock) continue;
    std::error_code other;
    const bool ours = is_ours(path);
    if (ours && !is_partial(path) && known.contains(path.stem().string())) continue;
    all.push_back({.kind = ours ? BlobItem::Kind::damaged : BlobItem::Kind::foreign,
                   .name = path.filename().string(),
                   .trouble = !ours                         ? "nothing of onw's"
                              : path.extension() == kRecord ? "its record cannot be read"
                              : is_partial(path)            ? "unfinished"
                                                            : "without a record",
                   .bytes = size_of_all(path),
                   .used = fs::last_write_time(path, other)});
  }
  return all;
}

Result<int64_t> BlobStore::remove_if(const std::function<bool(const BlobItem&)>& goes) const {
  const auto all = items();
  RETURN_IF_ERROR(all);
  int64_t freed = 0;
  for (const BlobItem& item : *all) {
    if (!goes(item)) continue;
    std::error_code failed;
    if (item.kind == BlobItem::Kind::foreign) {
      fs::remove_all(folder_ / item.name, failed);
    } else {
      const std::string key = item.record ? item.record->key : key_of(item.name);
      const auto lock = FileLock::try_acquire(file(key, kLock));
      if (!lock || !lock->held()) continue;  // somebody is just writing it
      if (item.kind == BlobItem::Kind::damaged && !is_partial(item.name))
        if (auto now = find(key); now && item_of(*now, folder_).kind == BlobItem::Kind::whole) continue;  // it was made
      if (item.record)
        remove(key);
      else
        fs::remove_all(folder_ / item.name, failed);
      std::error_code ignored;
      fs::remove(file(key, kLock), ignored);
    }
    if (failed) return error(Code::io, "{}: cannot be removed: {}", (folder_ / item.name).string(), failed.message());
    freed += item.bytes;
  }
  return freed;
}

Result<int64_t> BlobStore::prune(int64_t keep_bytes, std::string_view openvino) const {
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24) * kUnusedDays;
  int64_t kept = 0;
  return remove_if([&](const BlobItem& item) {
    if (item.kind == BlobItem::Kind::foreign) return false;
    if (item.kind == BlobItem::Kind::damaged) return true;
    if (item.used < oldest && !why_unused(*item.record, openvino).empty()) return true;
    if (item.record->ended == Ended::compiled && kept + item.record->bytes > keep_bytes) return true;
    kept += item.record->bytes;
    return false;
  });
}

}  // namespace onw::openvino
