// onw compile: a model's graphs into the store, ahead of the first question.
#include <fmt/chrono.h>

#include "base/interrupt.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "runtime/compile_ahead.h"

namespace onw::cli {
namespace {

std::string name_of(const openvino::CompileJob& job) { return fmt::format("{} for {} rows", job.segment, job.rows); }

// A line for each graph that was compiled, and how far it is.
openvino::CompileObserver show(const std::shared_ptr<Progress>& progress) {
  return [progress](const openvino::CompileEvent& e) {
    if (e.ended && !e.hit)
      progress->say(fmt::format("{} of {}: {}, {:.1f} s", e.done, e.total, name_of(e.job), e.seconds));
    progress->update(e.done, e.total);
  };
}

Result<void> print_blobs(const std::vector<openvino::Blob>& blobs) {
  std::vector<std::vector<std::string>> rows = {{"GRAPH", "ROWS", "SIZE", "COMPILED IN", "BY"}};
  int64_t bytes = 0;
  for (const auto& blob : blobs) {
    const auto& r = blob.record;
    bytes += r.bytes;
    rows.push_back(
        {r.segment, fmt::format("{}", r.rows), bytes_text(r.bytes), fmt::format("{:.1f} s", r.seconds), r.route});
  }
  RETURN_IF_ERROR(print("{}", table(rows)));
  return print("{} graphs, {} in {}\n", blobs.size(), bytes_text(bytes), blob_store().folder().string());
}

}  // namespace

Result<void> run_compile(const Args& args) {
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  if (!args.text("--platform").empty() && args.text("--device") != "NPU")
    return error(Code::usage, "--platform names an NPU: leave out --device {}", args.text("--device"));
  const auto cancel = std::make_shared<CancelToken>();
  const InterruptWatch watch([cancel](Interrupt) { cancel->cancel(); });
  auto progress = std::make_shared<Progress>("compiling", 0, Progress::Unit::items);
  auto blobs = compile_ahead(*folder, {.device = args.text("--device"),
                                       .platform = args.text("--platform"),
                                       .again = args.has("--again"),
                                       .observer = show(progress),
                                       .cancel = cancel});
  progress.reset();
  if (!blobs && blobs.error().code == Code::cancelled)
    return error(Code::cancelled, "stopped. What is compiled stays: the same command goes on");
  RETURN_IF_ERROR(blobs);
  return print_blobs(*blobs);
}

}  // namespace onw::cli
