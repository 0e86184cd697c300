// onw check: is a model folder whole?
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "store/model_folder.h"

namespace onw::cli {

Result<void> run_check(const Args& args) {
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto model = ModelFolder::open(*folder);
  RETURN_IF_ERROR(model);
  const bool deep = args.has("--deep");
  if (deep) RETURN_IF_ERROR(model->check_deep());
  const auto bytes = model->weights().bytes();
  if (args.has("--json"))
    return print(
        "{}\n",
        nlohmann::ordered_json{{"folder", folder->string()}, {"faults", 0}, {"deep", deep}, {"bytes", bytes}}.dump(
            2, ' ', false, nlohmann::json::error_handler_t::replace));
  if (deep) return print("{} is whole: {}, every byte read\n", folder->string(), bytes_text(bytes));
  return print("{}: no fault in the header, the length and samples of {} (--deep reads every byte)\n", folder->string(),
               bytes_text(bytes));
}

}  // namespace onw::cli
