#include "hub/local.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hub/source.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFinished = "engine.json";
constexpr const char* kRemoved = ".removed-";
constexpr size_t kNamesShown = 10;

bool is_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kFinished, ignored);
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    if (std::error_code ignored; entry->is_directory(ignored) && !entry->path().filename().string().starts_with('.'))
      found.push_back(entry->path());
  return found;
}

LocalModel model_at(const fs::path& folder, std::string name) {
  std::error_code ignored;
  return {std::move(name), folder, folder_bytes(folder), fs::last_write_time(folder / kFinished, ignored)};
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string names(const std::vector<LocalModel>& models) {
  std::string text;
  for (size_t i = 0; i < std::min(models.size(), kNamesShown); ++i) text += (i == 0 ? "" : ", ") + models[i].name;
  return models.size() > kNamesShown ? text + ", ..." : text;
}

// The one that `fits`, none, or several.
template <class Fits>
std::vector<LocalModel> all_that(const std::vector<LocalModel>& models, const Fits& fits) {
  std::vector<LocalModel> found;
  std::ranges::copy_if(models, std::back_inserter(found), [&](const LocalModel& m) { return fits(m.name); });
  return found;
}

}  // namespace

fs::path models_folder(const fs::path& home) { return home / "models"; }

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code none;
    const auto size = entry->is_regular_file(none) ? entry->file_size(none) : 0;
    if (!none) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

bool is_model_name(std::string_view text) {
  return std::ranges::count(text, '/') <= 1 && !text.starts_with('.') && check_file_name(text).has_value();
}

Result<std::vector<LocalModel>> list_models(const fs::path& models) {
  std::error_code failed;
  if (!fs::exists(models, failed)) return std::vector<LocalModel>();
  fs::directory_iterator readable(models, failed);
  if (failed) return error(Code::io, "cannot read {}: {}", models.string(), failed.message());
  std::vector<LocalModel> found;
  for (const auto& folder : folders_in(models)) {
    const auto name = folder.filename().string();
    if (is_model(folder)) {
      found.push_back(model_at(folder, name));
      continue;
    }
    for (const auto& inner : folders_in(folder))
      if (is_model(inner)) found.push_back(model_at(inner, name + "/" + inner.filename().string()));
  }
  std::ranges::sort(found, {}, &LocalModel::name);
  return found;
}

Result<LocalModel> find_model(const fs::path& models, std::string_view name) {
  if (is_model_name(name) && is_model(models / name)) return model_at(models / name, std::string(name));
  auto known = list_models(models);
  RETURN_IF_ERROR(known);
  const auto wanted = lower(name);
  auto found = all_that(*known, [&](std::string_view n) { return lower(n) == wanted; });
  if (found.empty()) found = all_that(*known, [&](std::string_view n) { return lower(n).ends_with("/" + wanted); });
  if (found.empty()) found = all_that(*known, [&](std::string_view n) { return lower(n).starts_with(wanted + "."); });
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    return error(Code::invalid_argument, "'{}' fits several models: {}. Say the whole name", name, names(found));
  const bool on_a_hub = name.find('/') != name.npos && parse_source(name, "").has_value();  // as far as its letters go
  const auto remedy = on_a_hub ? fmt::format("To bring it: onw pull {}", name)
                               : "Nor is it a folder or a file here. To bring a model of a hub: onw pull OWNER/NAME";
  if (known->empty())
    return error(Code::not_found, "there is no model '{}': {} holds none yet. {}", name, models.string(), remedy);
  return error(Code::not_found, "there is no model '{}' in {}. There are: {}. {}", name, models.string(), names(*known),
               remedy);
}

Result<int64_t> remove_model(const fs::path& models, std::string_view name) {
  if (!is_model_name(name))
    return error(Code::invalid_argument, "'{}' is not the name of a model (onw list shows them)", name);
  auto model = find_model(models, name);
  RETURN_IF_ERROR(model);
  std::error_code failed;
  if (fs::is_symlink(model->folder, failed)) {  // a link that somebody made: what it leads to is not ours
    fs::remove(model->folder, failed);
    if (failed) return error(Code::io, "cannot remove {}: {}", model->folder.string(), failed.message());
    return 0;
  }
  const auto removed = model->folder.parent_path() / (kRemoved + model->folder.filename().string());
  fs::remove_all(removed, failed);  // left by a removal that was interrupted
  fs::rename(model->folder, removed, failed);
  if (!failed) fs::remove_all(removed, failed);
  if (failed) return error(Code::io, "cannot remove {}: {}", model->folder.string(), failed.message());
  if (model->folder.parent_path() != models) fs::remove(model->folder.parent_path(), failed);  // where it is empty now
  return model->bytes;
}

}  // namespace onw
