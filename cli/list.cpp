// onw list: the models on this machine.
#include <fmt/chrono.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "cli/cache_items.h"
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

ordered_json cache_json(const std::vector<Kept>& kept) {
  ordered_json entries = ordered_json::array();
  for (const Kept& k : kept)
    entries.push_back({{"kind", k.kind},
                       {"model", k.model},
                       {"what", k.what},
                       {"trouble", k.trouble.empty() ? ordered_json() : ordered_json(k.trouble)},
                       {"unused", k.unused.empty() ? ordered_json() : ordered_json(k.unused)},
                       {"bytes", k.bytes},
                       {"used", fmt::format("{:%FT%TZ}", fmt::gmtime(seconds_of(k.used)))}});
  return {
      {"folder", cache_folder().string()}, {"bytes", folder_bytes(cache_folder())}, {"entries", std::move(entries)}};
}

std::string what_text(const Kept& k) {
  const std::string& why = k.trouble.empty() ? k.unused : k.trouble;
  return why.empty() ? k.what : fmt::format("{}{}{}", k.what, k.what.empty() ? "" : ": ", why);
}

Result<void> print_cache(const std::vector<Kept>& kept) {
  std::vector<std::vector<std::string>> rows = {{"CACHED", "MODEL", "WHAT", "SIZE", "USED"}};
  for (const Kept& k : kept)
    rows.push_back({k.kind, k.model, what_text(k), bytes_text(k.bytes),
                    fmt::format("{:%F %R}", fmt::localtime(seconds_of(k.used)))});
  if (!kept.empty()) RETURN_IF_ERROR(print("{}", table(rows)));
  const auto of_no_use =
      std::ranges::count_if(kept, [](const Kept& k) { return !k.trouble.empty() || !k.unused.empty(); });
  if (of_no_use > 0)
    tell(
        "{} of them {} of no use: onw rm --cache --unused removes {}. What is damaged is made anew when it is wanted\n",
        of_no_use, of_no_use == 1 ? "is" : "are", of_no_use == 1 ? "it" : "them");
  return print("cache: {} in {} (may be deleted: onw rm --cache)\n", bytes_text(folder_bytes(cache_folder())),
               cache_folder().string());
}

Result<void> print_json(const std::vector<LocalModel>& models, const std::vector<Leftover>& unfinished,
                        const std::vector<Kept>* cache) {
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
  if (cache != nullptr) all["cache"] = cache_json(*cache);
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
  const auto kept = args.has("--cache") ? kept_in_cache() : Result<std::vector<Kept>>();
  RETURN_IF_ERROR(kept);
  if (args.has("--json")) return print_json(*models, unfinished, args.has("--cache") ? &*kept : nullptr);
  if (models->empty()) tell("No models in {} yet. Get one: onw pull ORG/NAME\n", folder.string());
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "CONVERTED"}};
  for (const auto& model : *models)
    rows.push_back(
        {model.name, bytes_text(model.bytes), fmt::format("{:%F %R}", fmt::localtime(seconds_of(model.modified)))});
  if (!models->empty()) RETURN_IF_ERROR(print("{}", table(rows)));
  RETURN_IF_ERROR(print_unfinished(unfinished));
  if (args.has("--cache")) return print_cache(*kept);
  return {};
}

}  // namespace onw::cli
