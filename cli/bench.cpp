// onw bench: speed beside the roofs of the machine, measured in the same run.
#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "base/output_file.h"
#include "base/page_cache.h"
#include "base/topology.h"
#include "cli/bench_chart.h"
#include "cli/bench_fused.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "cli/roofs.h"
#include "cli/token_ids.h"
#include "kernels/isa.h"
#include "models/registry.h"
#include "runtime/choose_device.h"
#include "runtime/mtp.h"
#include "store/model_folder.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Report {
  std::string model;
  DeviceChoice device;
  EngineInfo engine;
  ModelCost cost;
  Roofs roofs;
  double load_cold_s = 0, load_warm_s = 0;
  int64_t peak_bytes = 0;
  std::vector<BenchTiming> runs;
};

double share(const Report& r, const BenchTiming& t) {
  return std::max(t.bytes_per_s / r.roofs.read_bytes_per_s, t.ops_per_s / r.roofs.ops_per_s);
}

// As far as the context reaches.
std::vector<BenchCase> full_cases(int64_t drawn, int64_t max_context) {
  std::vector<BenchCase> all;
  for (const int64_t rows : {64, 512, 2048}) all.push_back({.prompt = true, .rows = rows});
  for (const int64_t depth : {0, 1024, 8192, 16384}) all.push_back({.prompt = false, .rows = drawn, .depth = depth});
  for (const int batch : {2, 4, 8}) all.push_back({.prompt = false, .rows = drawn, .batch = batch});
  for (const BenchCase& c : all)
    if (c.depth + c.rows > max_context)
      tell("Left out: {} tokens at a depth of {}, beyond the model's context of {}\n", c.rows, c.depth, max_context);
  std::erase_if(all, [&](const BenchCase& c) { return c.depth + c.rows > max_context; });
  return all;
}

std::vector<BenchCase> cases(const Args& args, int64_t max_context) {
  if (args.has("--full")) return full_cases(*args.integer("--decode"), max_context);
  std::vector<BenchCase> all;
  for (const int64_t batch : args.integers("--batch"))
    for (const int64_t depth : args.integers("--depth")) {
      for (const int64_t rows : args.integers("--prompt")) all.push_back({true, rows, depth, static_cast<int>(batch)});
      all.push_back({false, *args.integer("--decode"), depth, static_cast<int>(batch)});
    }
  std::erase_if(all, [](const BenchCase& c) { return c.rows == 0; });
  return all;
}

// Tokens in the longest conversation that is measured.
int64_t deepest(const Args& args) {
  int64_t most = 0;
  for (const BenchCase& c : cases(args, std::numeric_limits<int64_t>::max())) most = std::max(most, c.depth + c.rows);
  return most;
}

// What --replay names; nothing without it.
Result<std::vector<int32_t>> recording_of(const Args& args) {
  if (!args.has("--replay")) {
    if (!args.integers("--accept").empty())
      return error(Code::usage,
                   "--accept says how many recorded tokens are guessed: give the recording, too, with --replay FILE");
    return std::vector<int32_t>();
  }
  auto ids = read_token_ids(args.text("--replay"));
  RETURN_IF_ERROR(ids);
  if (ids->empty()) return error(Code::invalid_argument, "{}: holds no tokens", args.text("--replay"));
  return ids;
}

// Recorded tokens, again and again; else pseudo-random ones, the same every time.
Draw draws(const std::vector<int32_t>& recording, int64_t vocabulary) {
  if (recording.empty())
    return [vocabulary](int64_t n) {
      return static_cast<int32_t>((static_cast<uint64_t>(n) * 0x9e3779b97f4a7c15U >> 33) %
                                  static_cast<uint64_t>(vocabulary));
    };
  return [recording](int64_t n) { return recording[static_cast<size_t>(n) % recording.size()]; };
}

// Until the first token is computed: what a person waits for.
Result<double> time_load(const std::filesystem::path& folder, const LoadOptions& options,
                         std::shared_ptr<Executable>& loaded) {
  loaded.reset();
  const auto start = Clock::now();
  auto executable = load_executable(folder, options);
  RETURN_IF_ERROR(executable);
  loaded = std::move(*executable);
  auto sequence = loaded->new_sequence();
  RETURN_IF_ERROR(sequence);
  RETURN_IF_ERROR((*sequence)->reserve(1));
  Sequence* const sequences[] = {sequence->get()};
  const Row rows[] = {text_row(0, 0, 0, true)};
  RETURN_IF_ERROR(loaded->run({sequences, rows}, CancelToken()));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Only a replay has something to draft.
bool wants_mtp(const Args& args) { return args.has("--replay") && !args.has("--no-mtp"); }

// Cold, then warm, which stays.
Result<void> load(const std::filesystem::path& folder, const Args& args, Report& r,
                  std::shared_ptr<Executable>& executable) {
  LoadOptions options = load_options(args);
  options.mtp = wants_mtp(args);
  options.on_no_mtp = [](const std::string& why) { tell("no drafts by the MTP layer: {}\n", why); };
  auto choice = choose_device(options.device);
  RETURN_IF_ERROR(choice);
  r.device = std::move(*choice);
  options.device = r.device.device;
  if (const auto remark = fused_remark(args, options.device); !remark.empty()) tell("{}\n", remark);
  if (!args.has("--no-load")) {
    for (const auto file : {kWeightsFile, kExpertsFile}) drop_from_page_cache(folder / file);
    const auto cold = time_load(folder, options, executable);
    RETURN_IF_ERROR(cold);
    r.load_cold_s = *cold;
  }
  const FusedWatch fused;
  const bool makes_fused = r.device.device == "NPU" || r.device.device == "GPU";
  if (makes_fused) options.on_fused = fused.ear();
  options.fused_at_once = deepest(args);
  const auto warm = time_load(folder, options, executable);
  RETURN_IF_ERROR(warm);
  if (const std::string text = makes_fused ? fused.wait() : ""; !text.empty()) tell("{}\n", text);
  if (!args.has("--no-load")) r.load_warm_s = *warm;
  return {};
}

Result<Report> measure(const Args& args) {
  Report r;
  const auto folder = locate_or_pull(args.positional(0));
  RETURN_IF_ERROR(folder);
  r.model = args.positional(0);
  const auto recording = recording_of(args);  // before minutes of loading
  RETURN_IF_ERROR(recording);
  {
    const auto model = ModelFolder::open(*folder);
    RETURN_IF_ERROR(model);
    const auto program = build_program(model->config());
    RETURN_IF_ERROR(program);
    r.engine = model->engine();
    r.cost = model_cost(*program, r.engine);
  }
  std::shared_ptr<Executable> executable;
  RETURN_IF_ERROR(load(*folder, args, r, executable));
  const auto all = cases(args, executable->info().max_context);
  {
    Progress progress("measuring", static_cast<int64_t>(all.size()), Progress::Unit::items);
    Bench bench(*executable, r.cost, draws(*recording, executable->info().vocabulary), !r.device.platform.empty());
    const bool has_layer = dynamic_cast<const Mtp*>(executable.get()) != nullptr;
    const ReplayDrafts by = {
        .lookup = !args.has("--no-pld"), .mtp = wants_mtp(args) && has_layer, .accept = args.integers("--accept")};
    for (const auto& what : all) {
      const bool drafts = !what.prompt && !recording->empty() && (by.lookup || by.mtp || !by.accept.empty());
      const auto timing = drafts ? bench.time_recorded(what, *recording, by) : bench.time(what, args.has("--profile"));
      RETURN_IF_ERROR(timing);
      r.runs.push_back(*timing);
      progress.update(static_cast<int64_t>(r.runs.size()));
    }
  }
  r.peak_bytes = peak_memory_bytes();
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  r.roofs = measure_roofs(plan_threads(read_machine(), load_options(args).threads), *isa, 1.0);
  return r;
}

ordered_json profile_json(const std::vector<ProfileLine>& lines, int64_t steps) {
  ordered_json all = ordered_json::array();
  const auto each = static_cast<double>(steps);
  for (const auto& line : lines)
    all.push_back({{"op", line.op},
                   {"name", line.name},
                   {"calls", line.calls / steps},
                   {"seconds", line.seconds / each},
                   {"weight_bytes", line.weight_bytes / steps},
                   {"weight_ops", line.weight_ops / steps}});
  return all;
}

ordered_json to_json(const Report& r) {
  ordered_json runs = ordered_json::array();
  for (const auto& t : r.runs) {
    runs.push_back({{"kind", t.what.prompt ? "prompt" : "decode"},
                    {"rows", t.what.rows},
                    {"depth", t.what.depth},
                    {"batch", t.what.batch},
                    {"tokens_per_s", t.tokens_per_s},
                    {"bytes_per_s", t.bytes_per_s},
                    {"ops_per_s", t.ops_per_s},
                    {"share", share(r, t)}});
    if (t.host_share >= 0) runs.back()["host_share"] = t.host_share;
    if (t.plain_tokens_per_s > 0) {
      runs.back()["plain_tokens_per_s"] = t.plain_tokens_per_s;
      runs.back()["drafted"] = t.drafted;
      runs.back()["accepted"] = t.accepted;
      runs.back()["mtp_drafted"] = t.mtp_drafted;
      runs.back()["mtp_accepted"] = t.mtp_accepted;
      runs.back()["mtp_judged"] = t.mtp_judged;
      runs.back()["mtp_right"] = t.mtp_right;
    }
    if (t.profiled_steps > 0) runs.back()["profile"] = profile_json(t.profile, t.profiled_steps);
  }
  return {{"machine",
           {{"cpu", cpu_features().model},
            {"isa", active_isa() ? std::string(name(*active_isa())) : ""},
            {"threads", r.roofs.threads},
            {"memory_bytes", total_memory_bytes()}}},
          {"device", r.device.device},
          {"model",
           {{"name", r.model},
            {"family", r.engine.family},
            {"layers", r.engine.layers},
            {"hidden", r.engine.hidden},
            {"vocabulary", r.engine.vocabulary},
            {"step_bytes", static_cast<int64_t>(r.cost.bytes(1))}}},
          {"roofs",
           {{"read_bytes_per_s", r.roofs.read_bytes_per_s},
            {"ops_per_s", r.roofs.ops_per_s},
            {"vector_ops_per_s", r.roofs.vector_ops_per_s}}},
          {"runs", std::move(runs)},
          {"load_s", {{"cold", r.load_cold_s}, {"warm", r.load_warm_s}}},
          {"peak_bytes", r.peak_bytes}};
}

std::string to_csv(const Report& r) {
  std::string text = "kind,rows,depth,batch,tokens_per_s,bytes_per_s,ops_per_s,share\n";
  for (const auto& t : r.runs)
    text += fmt::format("{},{},{},{},{:.3f},{:.0f},{:.0f},{:.4f}\n", t.what.prompt ? "prompt" : "decode", t.what.rows,
                        t.what.depth, t.what.batch, t.tokens_per_s, t.bytes_per_s, t.ops_per_s, share(r, t));
  return text;
}

// What drafting did, for each replay.
std::string replays_text(const Report& r) {
  std::string text;
  for (const auto& t : r.runs) {
    if (t.plain_tokens_per_s <= 0) continue;
    text += fmt::format(
        "replay of {} tokens at {}, {} at once: {:.1f} tokens/s without drafts, {:.1f} with: {:.2f} times", t.what.rows,
        t.what.depth, t.what.batch, t.plain_tokens_per_s, t.tokens_per_s, t.tokens_per_s / t.plain_tokens_per_s);
    text += fmt::format("; {} of {} drafted tokens right", t.accepted, t.drafted);
    if (t.mtp_drafted > 0) text += fmt::format(", of them {} of {} by the MTP layer", t.mtp_accepted, t.mtp_drafted);
    for (size_t k = 0; k < t.mtp_judged.size() && t.mtp_judged[k] > 0; ++k)
      text += fmt::format("{}{:.0f} %", k == 0 ? "; right where those before were: " : ", ",
                          100.0 * static_cast<double>(t.mtp_right[k]) / static_cast<double>(t.mtp_judged[k]));
    text += "\n";
  }
  return text;
}

std::string to_text(const Report& r) {
  std::vector<std::vector<std::string>> rows = {{"KIND", "ROWS", "DEPTH", "BATCH", "TOKENS/S", "GB/S", "TOPS", "ROOF"}};
  const bool graphs = std::ranges::any_of(r.runs, [](const auto& t) { return t.host_share >= 0; });
  if (graphs) rows.back().emplace_back("HOST");
  for (const auto& t : r.runs) {
    rows.push_back({t.what.prompt ? "prompt" : "decode", fmt::format("{}", t.what.rows),
                    fmt::format("{}", t.what.depth), fmt::format("{}", t.what.batch),
                    fmt::format("{:.1f}", t.tokens_per_s), fmt::format("{:.2f}", t.bytes_per_s * 1e-9),
                    fmt::format("{:.3f}", t.ops_per_s * 1e-12), fmt::format("{:.0f} %", 100 * share(r, t))});
    if (graphs) rows.back().push_back(fmt::format("{:.1f} %", 100 * std::max(t.host_share, 0.0)));
  }
  const auto replays = replays_text(r);
  const std::string device = r.device.device == "CPU" ? "" : fmt::format(", device {}", r.device.device);
  return fmt::format("{} on {} ({}, {} threads{})\n", r.model, cpu_features().model,
                     active_isa() ? name(*active_isa()) : "", r.roofs.threads, device) +
         table(rows) + replays +
         (graphs ? "HOST: the share of the time outside the device's graphs and attention\n" : "") +
         fmt::format("roofs: {:.2f} GB/s read, {:.3f} TOPS of INT8{}\n", r.roofs.read_bytes_per_s * 1e-9,
                     r.roofs.ops_per_s * 1e-12,
                     r.roofs.vector_ops_per_s < r.roofs.ops_per_s
                         ? fmt::format(" in tiles, {:.3f} in vectors", r.roofs.vector_ops_per_s * 1e-12)
                         : "") +
         (r.load_warm_s > 0
              ? fmt::format("first token after {:.2f} s (cold), {:.2f} s (warm); ", r.load_cold_s, r.load_warm_s)
              : "") +
         fmt::format("{} at most in memory\n", bytes_text(r.peak_bytes));
}

std::string profiles_text(const Report& r) {
  std::string text;
  for (const auto& t : r.runs)
    if (t.profiled_steps > 0)
      text += fmt::format("\n{}, {} rows at depth {}, {} at once: one {}\n", t.what.prompt ? "prompt" : "decode",
                          t.what.rows, t.what.depth, t.what.batch, t.what.prompt ? "prompt" : "step") +
              profile_table(t.profile, t.profiled_steps);
  return text;
}

std::vector<Bar> bars(const Report& r) {
  std::vector<Bar> all;
  for (const auto& t : r.runs)
    all.push_back({fmt::format("{} {}{}{}", t.what.prompt ? "prompt" : "decode", t.what.rows,
                               t.what.depth > 0 ? fmt::format(" at {}", t.what.depth) : "",
                               t.what.batch > 1 ? fmt::format(" ×{}", t.what.batch) : ""),
                   fmt::format("{:.1f} tokens/s, {:.0f} % of the roof", t.tokens_per_s, 100 * share(r, t)),
                   share(r, t)});
  return all;
}

Result<void> print_report(const Report& r, const Args& args) {
  if (args.has("--json")) return print("{}\n", to_json(r).dump(2, ' ', false, ordered_json::error_handler_t::replace));
  if (args.has("--csv")) return print("{}", to_csv(r));
  return print("{}{}", to_text(r), profiles_text(r));
}

Result<void> check_place(const std::filesystem::path& file) {
  std::error_code failed;
  if (std::filesystem::is_directory(file, failed))
    return error(Code::invalid_argument, "--svg {}: is a folder. Give the name of a file", file.string());
  const auto folder = file.has_parent_path() ? file.parent_path() : ".";
  if (std::filesystem::is_directory(folder, failed)) return {};
  return error(Code::not_found, "--svg {}: there is no folder {}. Make it first", file.string(), folder.string());
}

}  // namespace

Result<void> run_bench(const Args& args) {
  if (args.has("--json") && args.has("--csv")) return error(Code::usage, "give --json or --csv, one of them");
  if (args.has("--svg")) RETURN_IF_ERROR(check_place(args.text("--svg")));  // not after minutes of measuring
  const auto report = measure(args);
  RETURN_IF_ERROR(report);
  RETURN_IF_ERROR(print_report(*report, args));
  if (!args.has("--svg")) return {};
  return write_file_atomically(args.text("--svg"),
                               bar_chart(fmt::format("{} on {}", report->model, cpu_features().model), bars(*report)));
}

}  // namespace onw::cli
