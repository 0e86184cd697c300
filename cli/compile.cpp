// onw compile: a model's graphs into the store, ahead of the first question.
#include <utility>

#include "base/interrupt.h"
#include "cli/commands.h"
#include "cli/end_soon.h"
#include "cli/engine_flags.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "runtime/compile_ahead.h"

namespace onw::cli {
namespace {

constexpr const char* kStopped = "stopped. What is compiled stays: the same command goes on";

std::string name_of(const openvino::CompileJob& job) { return fmt::format("{} for {} rows", job.segment, job.rows); }

// A line for each graph that was compiled, and how far it is; one where another process has it in work.
openvino::CompileObserver show(const std::shared_ptr<Progress>& progress) {
  return [progress, told = false](const openvino::CompileEvent& e) mutable {
    if (e.waits && !std::exchange(told, true))
      progress->say(fmt::format("Another onw is compiling {}: waiting for it, and taking what it makes. Ctrl-C stops",
                                name_of(e.job)));
    if (e.ended && !e.hit)
      progress->say(e.total > 1 ? fmt::format("{} of {}: {}, {:.1f} s", e.done, e.total, name_of(e.job), e.seconds)
                                : fmt::format("{}, {:.1f} s", name_of(e.job), e.seconds));
    progress->update(e.done, e.total);
  };
}

Result<void> print_graphs(const CompiledAhead& ahead, const std::string& platform) {
  std::vector<std::vector<std::string>> rows = {{"GRAPH", "ROWS", "SIZE", "COMPILED IN", "BY"}};
  int64_t bytes = 0;
  for (const auto& r : ahead.graphs) {
    bytes += r.bytes;
    rows.push_back(
        {r.segment, fmt::format("{}", r.rows), bytes_text(r.bytes), fmt::format("{:.1f} s", r.seconds), r.route});
  }
  RETURN_IF_ERROR(print("{}", table(rows)));
  RETURN_IF_ERROR(
      print("{} graphs, {} in {}\n", ahead.graphs.size(), bytes_text(bytes), blob_store().folder().string()));
  if (ahead.stand_in) tell("ONW_NPU_STAND_IN: these are for OpenVINO's CPU device in the NPU's place\n");
  if (ahead.fused_tokens > 0) tell("Attention inside the graphs up to {} tokens\n", ahead.fused_tokens);
  if (!ahead.fused_trouble.empty())
    tell("Attention inside the graphs{}: not to be had: {}\n",
         ahead.fused_tokens > 0 ? fmt::format(" for more than {} tokens", ahead.fused_tokens) : "",
         printable(ahead.fused_trouble));
  tell("{}\n", ahead.loaded ? "All of them load"
                            : fmt::format("They were not tried: no NPU {} was asked to load them", platform));
  return {};
}

}  // namespace

Result<void> run_compile(const Args& args) {
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  if (!args.text("--platform").empty() && args.text("--device") != "NPU")
    return error(Code::usage, "--platform names an NPU: leave out --device {}", args.text("--device"));
  const auto cancel = std::make_shared<CancelToken>();
  EndSoon end;
  const InterruptWatch watch([&end, cancel](Interrupt) {
    if (!cancel->cancelled()) end.begin(error(Code::cancelled, "{}", kStopped));
    cancel->cancel();
  });
  auto progress = std::make_shared<Progress>("compiling", 0, Progress::Unit::items);
  const auto ahead = compile_ahead(*folder, {.device = args.text("--device"),
                                             .platform = args.text("--platform"),
                                             .again = args.has("--again"),
                                             .fused = fused(args),
                                             .fused_tokens = args.integer("--context").value_or(0),
                                             .observer = show(progress),
                                             .cancel = cancel});
  progress.reset();
  if (!ahead && ahead.error().code == Code::cancelled) return error(Code::cancelled, "{}", kStopped);
  RETURN_IF_ERROR(ahead);
  return print_graphs(*ahead, args.text("--platform"));
}

}  // namespace onw::cli
