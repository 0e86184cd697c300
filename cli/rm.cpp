// onw rm: removes a model, and what is unfinished of it.
#include <cstdio>
#include <iostream>
#include <optional>

#include "base/paths.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hub/leftovers.h"
#include "hub/local.h"

namespace onw::cli {
namespace {

Result<void> ask(const std::string& name, int64_t bytes, std::string_view what) {
  if (!is_terminal(Stream::in))
    return error(Code::usage, "there is no terminal to ask on. To remove {} without a question: onw rm {} --yes", name,
                 name);
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

}  // namespace

Result<void> run_rm(const Args& args) {
  const auto models = models_folder(home_folder());
  const std::string& wanted = args.positional(0);
  const auto model = find_model(models, wanted);
  const bool only_unfinished = !model && unfinished_bytes(wanted);
  if (!only_unfinished) RETURN_IF_ERROR(model);
  const std::string& name = only_unfinished ? wanted : model->name;
  const int64_t bytes = unfinished_bytes(name).value_or(0) + (only_unfinished ? 0 : model->bytes);
  if (!args.has("--yes")) RETURN_IF_ERROR(ask(name, bytes, only_unfinished ? "unfinished, " : ""));
  auto freed = remove_leftovers(home_folder(), name);
  RETURN_IF_ERROR(freed);
  if (!only_unfinished) {
    const auto removed = remove_model(models, name);
    RETURN_IF_ERROR(removed);
    *freed += *removed;
  }
  tell("Removed {}: {} are free again\n", name, bytes_text(*freed));
  return {};
}

}  // namespace onw::cli
