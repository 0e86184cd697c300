// onw convert: a published model into a model folder.
#include "convert/convert.h"

#include "cli/commands.h"
#include "cli/graph_files.h"
#include "cli/model.h"
#include "cli/output.h"

namespace onw::cli {

Result<void> run_convert(const Args& args) {
  if (args.has("--graphs-only")) return write_all_graphs(args);
  auto options = convert_options(args);
  RETURN_IF_ERROR(options);
  options->provenance.command = fmt::format("onw convert {} {}", args.positional(0), args.positional(1));
  const auto summary = convert_with_progress(args.positional(0), args.positional(1), *options);
  RETURN_IF_ERROR(summary);
  for (const auto& tensor : summary->tensors) RETURN_IF_ERROR(print("{}\n", to_line(tensor)));
  for (const auto& name : summary->unused) tell("not used: {}\n", name);
  if (!summary->mtp_left_out.empty())
    tell("left out: the layer that drafts tokens (MTP); answers do not need it. {}\n", summary->mtp_left_out);
  tell("{}: {} in {} weights\n", summary->folder.string(), bytes_text(summary->bytes), summary->tensors.size());
  return {};
}

}  // namespace onw::cli
