#include "cli/graph_files.h"

#include "cli/engine_flags.h"
#include "cli/model.h"
#include "cli/output.h"
#include "models/registry.h"
#include "runtime/load.h"
#include "targets/openvino/graphs.h"

namespace onw::cli {
namespace {

Result<void> write_for_rows(const OpenedModel& model, int64_t rows, KvFormat kv, const std::string& platform,
                            const std::filesystem::path& folder) {
  const auto weights = row_weights(model);
  RETURN_IF_ERROR(weights);
  const auto names =
      openvino::write_graphs(model.program, *weights, {.rows = rows, .kv = kv, .device = platform}, folder);
  RETURN_IF_ERROR(names);
  std::string text;
  for (const std::string& name : *names) text += fmt::format("{}\n", (folder / (name + ".xml")).string());
  return write_output(text);
}

// What K and V are kept in: INT8 on an NPU, unless the model wants better; F16 on the CPU device.
KvFormat kv_of(const OpenedModel& model, const std::string& platform) {
  return platform.starts_with("openvino") ? KvFormat::f16 : kv_default(model.program).format;
}

}  // namespace

Result<void> write_inspected_graphs(const std::filesystem::path& folder, const Args& args) {
  const auto model = open_model(folder);
  RETURN_IF_ERROR(model);
  const std::string platform = args.text("--platform");
  return write_for_rows(*model, *args.integer("--ir"), kv_format(args).value_or(kv_of(*model, platform)), platform,
                        args.text("--out"));
}

Result<void> write_all_graphs(const Args& args) {
  for (const char* flag : {"--format", "--importance", "--replace"})
    if (args.has(flag))
      return error(Code::usage,
                   "{} is for weights, and --graphs-only writes none: convert first, then onw convert {} {} "
                   "--graphs-only",
                   flag, args.positional(0), args.positional(1));
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto model = open_model(*folder);
  RETURN_IF_ERROR(model);
  const std::string platform = args.text("--platform");
  for (const int64_t rows : args.integers("--rows"))
    RETURN_IF_ERROR(write_for_rows(*model, rows, kv_of(*model, platform), platform,
                                   std::filesystem::path(args.positional(1)) / fmt::format("rows-{}", rows)));
  return {};
}

}  // namespace onw::cli
