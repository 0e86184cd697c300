// onw rm: removes a model, and what is unfinished of it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <vector>

#include "base/paths.h"
#include "base/terminal.h"
#include "cli/cache_items.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "hub/leftovers.h"
#include "hub/local.h"

namespace onw::cli {
namespace {

// `words`: the command that would remove it.
Result<void> ask(const std::string& name, const std::string& words, int64_t bytes, std::string_view what) {
  if (!is_terminal(Stream::in))
    return error(Code::usage, "there is no terminal to ask on. To remove {} without a question: onw rm {} --yes", name,
                 words);
  tell("Remove {} ({}{})? [y/N] ", name, what, bytes_text(bytes));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return error(Code::cancelled, "{} stays", name);
}

// Of what is unfinished of a model; none where there is nothing.
std::optional<int64_t> unfinished_bytes(const std::string& name) {
  std::optional<int64_t> bytes;
  for (const auto& left : list_leftovers(home_folder()))
    if (left.name == name) bytes = bytes.value_or(0) + left.bytes;
  return bytes;
}

// A name of which nothing is cached, nor is there a model, is a mistake.
Result<void> require_known(const std::string& model) {
  const auto cached = cached_models();
  RETURN_IF_ERROR(cached);
  if (std::ranges::find(*cached, model) != cached->end() || find_model(models_folder(home_folder()), model)) return {};
  if (cached->empty()) return error(Code::not_found, "there is no model {}, and nothing is cached of any", model);
  const std::vector<std::string_view> names(cached->begin(), cached->end());
  return error(Code::not_found, "nothing is cached of {}, but of: {}.{} onw list --cache shows it", model,
               printable(fmt::to_string(fmt::join(names, ", "))), did_you_mean(model, names));
}

// --cache: what is kept of a model, of nobody, or everything; models stay.
Result<void> remove_cached(const Args& args) {
  const std::string& model = args.positional(0);
  if (args.has("--unused") && !model.empty())
    return error(Code::usage, "--unused is of no model: leave out {} or --unused", model);
  const CacheShare share = args.has("--unused") ? CacheShare::unused
                           : model.empty()      ? CacheShare::all
                                                : CacheShare::of_model;
  const std::string what = share == CacheShare::unused     ? "what nobody uses in the cache"
                           : share == CacheShare::of_model ? fmt::format("what is cached of {}", model)
                                                           : "everything in the cache";
  if (share == CacheShare::of_model) RETURN_IF_ERROR(require_known(model));
  const auto bytes = cached_bytes(share, model);
  RETURN_IF_ERROR(bytes);
  if (*bytes == 0 && share != CacheShare::all) {
    tell("There is nothing: onw list --cache shows what is cached\n");
    return {};
  }
  const std::string words =
      fmt::format("{}{}--cache{}", model, model.empty() ? "" : " ", args.has("--unused") ? " --unused" : "");
  if (!args.has("--yes")) RETURN_IF_ERROR(ask(what, words, *bytes, ""));
  const auto freed = remove_from_cache(share, model);
  RETURN_IF_ERROR(freed);
  tell("Removed {}: {} are free again\n", what, bytes_text(*freed));
  return {};
}

}  // namespace

Result<void> run_rm(const Args& args) {
  if (args.has("--cache")) return remove_cached(args);
  if (args.has("--unused")) return error(Code::usage, "--unused goes with --cache: onw rm --cache --unused");
  if (args.positional(0).empty())
    return error(Code::usage, "NAME is missing. Usage: onw rm NAME, or onw rm --cache [NAME|--unused]");
  const auto models = models_folder(home_folder());
  const std::string& wanted = args.positional(0);
  const auto model = find_model(models, wanted);
  const bool only_unfinished = !model && unfinished_bytes(wanted);
  if (!only_unfinished) RETURN_IF_ERROR(model);
  const std::string& name = only_unfinished ? wanted : model->name;
  const int64_t bytes = unfinished_bytes(name).value_or(0) + (only_unfinished ? 0 : model->bytes);
  if (!args.has("--yes")) RETURN_IF_ERROR(ask(name, name, bytes, only_unfinished ? "unfinished, " : ""));
  auto freed = remove_leftovers(home_folder(), name);
  RETURN_IF_ERROR(freed);
  if (!only_unfinished) {
    const auto removed = remove_model(models, name);
    RETURN_IF_ERROR(removed);
    const auto cached = remove_cached_of(model->folder);
    RETURN_IF_ERROR(cached);
    *freed += *removed + *cached;
  }
  tell("Removed {}: {} are free again\n", name, bytes_text(*freed));
  return {};
}

}  // namespace onw::cli
