// onw list: the models on this machine.
#include <fmt/chrono.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hub/local.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

std::time_t seconds_of(std::filesystem::file_time_type time) {
  return std::chrono::system_clock::to_time_t(std::chrono::file_clock::to_sys(time) + std::chrono::nanoseconds(0));
}

int64_t folder_bytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  std::error_code failure;
  for (std::filesystem::recursive_directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

Result<void> print_json(const std::vector<LocalModel>& models, bool with_cache) {
  ordered_json all = {{"models", ordered_json::array()}};
  for (const auto& model : models)
    all["models"].push_back({{"name", model.name},
                             {"folder", model.folder.string()},
                             {"bytes", model.bytes},
                             {"modified", fmt::format("{:%FT%TZ}", fmt::gmtime(seconds_of(model.modified)))}});
  if (with_cache) all["cache"] = {{"folder", cache_folder().string()}, {"bytes", folder_bytes(cache_folder())}};
  return print("{}\n", all.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace

Result<void> run_list(const Args& args) {
  const auto folder = models_folder(home_folder());
  const auto models = list_models(folder);
  RETURN_IF_ERROR(models);
  if (args.has("--json")) return print_json(*models, args.has("--cache"));
  if (models->empty()) tell("No models in {} yet. Get one: onw pull ORG/NAME\n", folder.string());
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "CONVERTED"}};
  for (const auto& model : *models)
    rows.push_back(
        {model.name, bytes_text(model.bytes), fmt::format("{:%F %R}", fmt::localtime(seconds_of(model.modified)))});
  if (!models->empty()) RETURN_IF_ERROR(print("{}", table(rows)));
  if (args.has("--cache"))
    return print("cache: {} in {} (may be deleted)\n", bytes_text(folder_bytes(cache_folder())),
                 cache_folder().string());
  return {};
}

}  // namespace onw::cli
