// onw eval: what quantisation costs, and whether two devices agree.
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/eval_run.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/token_ids.h"
#include "runtime/choose_device.h"
#include "text/text.h"

namespace onw::cli {
namespace {

namespace fs = std::filesystem;

Result<std::vector<int32_t>> ids_to_evaluate(const Args& args, const fs::path& folder) {
  if (args.has("--text") == args.has("--ids")) return error(Code::usage, "give --text FILE or --ids FILE, one of them");
  if (args.has("--ids")) return read_token_ids(args.text("--ids"));
  const auto text = read_text(args.text("--text"));
  RETURN_IF_ERROR(text);
  const auto tokenizer = Tokenizer::open(folder.string());
  RETURN_IF_ERROR(tokenizer);
  auto encoding = tokenizer->encode(*text, {.bos = tokenizer->adds_bos()});
  RETURN_IF_ERROR(encoding);
  return std::move(encoding->ids);
}

// What --against names: a file of logits, or a device.
Result<std::unique_ptr<LogitsSource>> open_reference(const Args& args, const fs::path& folder) {
  const auto what = args.text("--against");
  if (fs::path(what).extension() == ".safetensors" || fs::is_regular_file(what)) return saved_logits(what);
  LoadOptions options = load_options(args);
  options.device = what;
  options.quantised = what != "reference";  // the plain reference is what there is to lose against
  if (!options.quantised) options.kv.reset();
  auto executable = load_executable(folder, options);
  RETURN_IF_ERROR(executable);
  return executable_logits(std::move(*executable));
}

// The file of --save-logits, written as the logits come.
class LogitsFile {
 public:
  static Result<LogitsFile> open(const fs::path& path, std::span<const int32_t> ids, int64_t vocabulary) {
    LogitsFile file;
    const auto target = file_to_replace(path);
    RETURN_IF_ERROR(target);
    file.path_ = *target;
    auto out = OutputFile::open(file.partial());
    RETURN_IF_ERROR(out);
    file.out_ = std::move(*out);
    const auto n = static_cast<int64_t>(ids.size());
    const nlohmann::ordered_json header = {
        {"ids", {{"dtype", "I64"}, {"shape", {n}}, {"data_offsets", {0, 8 * n}}}},
        {"logits",
         {{"dtype", "F32"}, {"shape", {n, vocabulary}}, {"data_offsets", {8 * n, 8 * n + 4 * n * vocabulary}}}}};
    std::string text = header.dump();
    while (text.size() % 8 != 0) text += ' ';
    const uint64_t length = text.size();
    RETURN_IF_ERROR(file.out_.write(std::as_bytes(std::span(&length, 1))));
    RETURN_IF_ERROR(file.out_.write(std::as_bytes(std::span(text))));
    const std::vector<int64_t> wide(ids.begin(), ids.end());
    RETURN_IF_ERROR(file.out_.write(std::as_bytes(std::span(wide))));
    return file;
  }
  Result<void> add(std::span<const float> logits) { return out_.write(std::as_bytes(logits)); }
  Result<void> finish() {
    RETURN_IF_ERROR(out_.finish());
    return rename_durably(partial(), path_);
  }

 private:
  fs::path partial() const { return path_.string() + ".part"; }

  fs::path path_;
  OutputFile out_;
};

std::string summary_text(const EvalSummary& s, const std::string& against) {
  std::string text =
      fmt::format("perplexity {:.4f} over {} tokens (mean {:.5f} nats)\n", s.perplexity, s.predictions, s.mean_nll);
  if (s.comparisons > 0)
    text += fmt::format(
        "against {}, {} rows: mean KL {:.3e}, 99.9 % below {:.3e}, largest {:.3e}; same first choice {:.2f} %\n",
        against, s.comparisons, s.mean_kl, s.kl_999, s.max_kl, 100 * s.top1_agreement);
  if (s.worst_layers.empty()) return text;
  text += "worst layers (relative RMS of what they hand on):";
  for (const auto& layer : s.worst_layers) text += fmt::format(" {} {:.2e}", layer.layer, layer.relative_rms);
  text += '\n';
  return text;
}

nlohmann::ordered_json summary_json(const EvalSummary& s, const std::string& device, const Args& args) {
  nlohmann::ordered_json json = {
      {"model", args.positional(0)},  {"device", device},       {"quantised", args.text("--quantised") == "yes"},
      {"predictions", s.predictions}, {"mean_nll", s.mean_nll}, {"perplexity", s.perplexity}};
  if (s.comparisons == 0) return json;
  auto layers = nlohmann::ordered_json::array();
  for (const auto& layer : s.worst_layers)
    layers.push_back({{"layer", layer.layer}, {"relative_rms", layer.relative_rms}});
  json["against"] = {{"what", args.text("--against")},
                     {"rows", s.comparisons},
                     {"mean_kl", s.mean_kl},
                     {"kl_999", s.kl_999},
                     {"max_kl", s.max_kl},
                     {"top1_agreement", s.top1_agreement},
                     {"worst_layers", std::move(layers)}};
  return json;
}

}  // namespace

Result<void> run_eval_command(const Args& args) {
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto ids = ids_to_evaluate(args, *folder);
  RETURN_IF_ERROR(ids);
  if (ids->empty()) return error(Code::invalid_argument, "there are no ids to evaluate");
  LoadOptions options = load_options(args);
  const auto choice = choose_device(options.device);
  RETURN_IF_ERROR(choice);
  options.device = choice->device;
  if (const auto remark = fused_remark(args, options.device); !remark.empty()) tell("{}\n", remark);
  options.quantised = args.text("--quantised") == "yes";
  auto executable = load_executable(*folder, options);
  RETURN_IF_ERROR(executable);
  const std::shared_ptr<Executable> shared = std::move(*executable);
  const auto source = executable_logits(shared, options.fused.value_or(false));
  std::unique_ptr<LogitsSource> reference;
  if (args.has("--against")) {
    auto opened = open_reference(args, *folder);
    RETURN_IF_ERROR(opened);
    reference = std::move(*opened);
  }
  Progress progress("evaluating", static_cast<int64_t>(ids->size()), Progress::Unit::items);
  EvalRun run{.ids = *ids,
              .window = args.integer("--context").value_or(shared->info().max_context),
              .rows_per_step = std::min(shared->info().max_step_rows, 64),
              .progress = [&](int64_t done) { progress.update(done); }};
  std::optional<LogitsFile> file;
  if (args.has("--save-logits")) {
    auto opened = LogitsFile::open(args.text("--save-logits"), *ids, source->vocabulary());
    RETURN_IF_ERROR(opened);
    file = std::move(*opened);
    run.sink = [&file](std::span<const float> logits) { return file->add(logits); };
  }
  const auto summary = run_eval(*source, reference.get(), run);
  RETURN_IF_ERROR(summary);
  if (file) RETURN_IF_ERROR(file->finish());
  if (args.has("--json"))
    return print(
        "{}\n",
        summary_json(*summary, choice->device, args).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return print("{}", summary_text(*summary, args.text("--against")));
}

}  // namespace onw::cli
