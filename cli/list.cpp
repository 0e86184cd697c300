// onw list: the models on this machine.
#include <fmt/chrono.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hub/leftovers.h"
#include "hub/local.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

std::time_t seconds_of(std::filesystem::file_time_type time) {
  return std::chrono::system_clock::to_time_t(std::chrono::file_clock::to_sys(time) + std::chrono::nanoseconds(0));
}

Result<void> print_json(const std::vector<LocalModel>& models, const std::vector<Leftover>& unfinished,
                        bool with_cache) {
  ordered_json all = {{"models", ordered_json::array()}, {"unfinished", ordered_json::array()}};
  for (const auto& model : models)
    all["models"].push_back({{"name", model.name},
                             {"folder", model.folder.string()},
                             {"bytes", model.bytes},
                             {"modified", fmt::format("{:%FT%TZ}", fmt::gmtime(seconds_of(model.modified)))}});
  for (const auto& left : unfinished)
    all["unfinished"].push_back({{"name", left.name},
                                 {"kind", name(left.kind)},
                                 {"folder", left.folder.string()},
                                 {"bytes", left.bytes},
                                 {"in_use", left.in_use}});
  if (with_cache) all["cache"] = {{"folder", cache_folder().string()}, {"bytes", folder_bytes(cache_folder())}};
  return print("{}\n", all.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

Result<void> print_unfinished(const std::vector<Leftover>& unfinished) {
  if (unfinished.empty()) return {};
  std::vector<std::vector<std::string>> rows = {{"UNFINISHED", "SIZE", "WHAT"}};
  for (const auto& left : unfinished)
    rows.push_back(
        {left.name, bytes_text(left.bytes), fmt::format("{}{}", name(left.kind), left.in_use ? ", in use" : "")});
  RETURN_IF_ERROR(print("{}", table(rows)));
  tell("What is unfinished goes on when it is asked for again, and goes away with: onw rm NAME\n");
  return {};
}

}  // namespace

Result<void> run_list(const Args& args) {
  const auto folder = models_folder(home_folder());
  const auto models = list_models(folder);
  RETURN_IF_ERROR(models);
  const auto unfinished = list_leftovers(home_folder());
  if (args.has("--json")) return print_json(*models, unfinished, args.has("--cache"));
  if (models->empty()) tell("No models in {} yet. Get one: onw pull ORG/NAME\n", folder.string());
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "CONVERTED"}};
  for (const auto& model : *models)
    rows.push_back(
        {model.name, bytes_text(model.bytes), fmt::format("{:%F %R}", fmt::localtime(seconds_of(model.modified)))});
  if (!models->empty()) RETURN_IF_ERROR(print("{}", table(rows)));
  RETURN_IF_ERROR(print_unfinished(unfinished));
  if (args.has("--cache"))
    return print("cache: {} in {} (may be deleted)\n", bytes_text(folder_bytes(cache_folder())),
                 cache_folder().string());
  return {};
}

}  // namespace onw::cli
