#include "hub/leftovers.h"

#include <algorithm>

#include "base/file_lock.h"
#include "hub/local.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial", kRemoved = ".removed-";

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    if (std::error_code ignored; entry->is_directory(ignored) && !entry->is_symlink(ignored))
      found.push_back(entry->path());
  return found;
}

// The file whose lock whoever works on a folder holds.
fs::path lock_of(const Leftover& l) {
  auto path = l.folder;
  if (l.kind == Leftover::Kind::conversion) path.replace_extension();
  return path += ".lock";
}

// A lock's file that is not there is not made: to look is not to leave more.
Result<FileLock> lock(const Leftover& l) {
  std::error_code ignored;
  const auto path = lock_of(l);
  if (l.kind == Leftover::Kind::removal || !fs::exists(path, ignored)) return FileLock();
  auto held = FileLock::try_acquire(path);
  if (held && !held->held())
    return error(Code::invalid_argument, "{} is in use by another onw: end that one first", l.folder.string());
  return held;
}

void add(std::vector<Leftover>& all, std::string model, Leftover::Kind kind, const fs::path& folder) {
  Leftover l{.name = std::move(model), .kind = kind, .folder = folder, .bytes = folder_bytes(folder)};
  l.in_use = !lock(l).has_value();
  all.push_back(std::move(l));
}

// In models/ or in models/ORG/, whose models are called `prefix` + their folder.
void add_of_models(std::vector<Leftover>& all, const fs::path& folder, const std::string& prefix) {
  for (const auto& inner : folders_in(folder)) {
    const std::string file = inner.filename().string();
    if (file.starts_with(kRemoved))
      add(all, prefix + file.substr(kRemoved.size()), Leftover::Kind::removal, inner);
    else if (file.ends_with(kPartial))
      add(all, prefix + file.substr(0, file.size() - kPartial.size()), Leftover::Kind::conversion, inner);
    else if (prefix.empty() && !file.starts_with('.') && !fs::exists(inner / "engine.json"))
      add_of_models(all, inner, file + "/");
  }
}

}  // namespace

std::string_view name(Leftover::Kind kind) {
  switch (kind) {
    case Leftover::Kind::download:
      return "download";
    case Leftover::Kind::conversion:
      return "conversion";
    case Leftover::Kind::removal:
      break;
  }
  return "removal";
}

std::vector<Leftover> list_leftovers(const fs::path& home) {
  std::vector<Leftover> all;
  add_of_models(all, models_folder(home), "");
  for (const auto& folder : folders_in(home / "downloads")) {
    std::string model = folder.filename().string();
    if (const auto at = model.find("--"); at != model.npos) model.replace(at, 2, "/");
    add(all, model, Leftover::Kind::download, folder);
  }
  std::ranges::sort(all, {}, [](const Leftover& l) { return std::pair(l.name, l.kind); });
  return all;
}

Result<int64_t> remove_leftovers(const fs::path& home, std::string_view model) {
  int64_t freed = 0;
  for (const auto& l : list_leftovers(home)) {
    if (l.name != model) continue;
    const auto held = lock(l);
    RETURN_IF_ERROR(held);
    std::error_code failed;
    fs::remove_all(l.folder, failed);
    if (failed) return error(Code::io, "cannot remove {}: {}", l.folder.string(), failed.message());
    if (l.kind != Leftover::Kind::removal) fs::remove(lock_of(l), failed);
    if (l.folder.parent_path() != models_folder(home)) fs::remove(l.folder.parent_path(), failed);  // where empty
    freed += l.bytes;
  }
  return freed;
}

}  // namespace onw
