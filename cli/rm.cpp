// onw rm: removes a model.
#include <cstdio>
#include <iostream>

#include "base/paths.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hub/local.h"

namespace onw::cli {
namespace {

Result<void> ask(const LocalModel& model) {
  if (!is_terminal(Stream::in))
    return error(Code::usage, "there is no terminal to ask on. To remove {} without a question: onw rm {} --yes",
                 model.name, model.name);
  tell("Remove {} ({})? [y/N] ", model.name, bytes_text(model.bytes));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return error(Code::cancelled, "{} stays", model.name);
}

}  // namespace

Result<void> run_rm(const Args& args) {
  const auto models = models_folder(home_folder());
  const auto model = find_model(models, args.positional(0));
  RETURN_IF_ERROR(model);
  if (!args.has("--yes")) RETURN_IF_ERROR(ask(*model));
  const auto freed = remove_model(models, model->name);
  RETURN_IF_ERROR(freed);
  tell("Removed {}: {} are free again\n", model->name, bytes_text(*freed));
  return {};
}

}  // namespace onw::cli
