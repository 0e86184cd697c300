// onw inspect: what a model is, what it takes, and what the compiler makes of it.
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "base/topology.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/graph_files.h"
#include "cli/inspect_file.h"
#include "cli/model.h"
#include "cli/output.h"
#include "graph/text.h"
#include "kernels/isa.h"
#include "models/registry.h"
#include "passes/decompose.h"
#include "runtime/choose_device.h"
#include "runtime/mtp.h"
#include "store/model_folder.h"
#include "targets/cpu/cpu.h"
#include "text/text.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

struct FormatUse {
  int weights = 0;
  int64_t values = 0;
  int64_t bytes = 0;
};

struct Facts {
  std::string name;
  EngineInfo engine;
  std::map<std::string, FormatUse> formats;
  FormatUse all;
  KvDefault kv;
  std::string drafts = "prompt lookup";
  int64_t context = 0;
  int64_t program_bytes = 0;  // the program itself and the tokenizer
  MemoryNeed need;
  int64_t total_bytes() const { return program_bytes + need.total(); }
};

// Resident before any weight is, and what an answer adds to it: code that has not run yet, stacks, small buffers and
// the checkpoint of a conversation (seen: 12 to 15 MB).
Result<int64_t> program_bytes(const std::filesystem::path& folder) {
  constexpr int64_t kAnswer = 14 << 20;
  const auto tokenizer = Tokenizer::open(folder.string());
  RETURN_IF_ERROR(tokenizer);
  return resident_memory_bytes() + kAnswer;
}

double bits_per_weight(const FormatUse& use) {
  return use.values == 0 ? 0 : 8.0 * static_cast<double>(use.bytes) / static_cast<double>(use.values);
}

Result<Facts> examine(const std::filesystem::path& folder, const Args& args) {
  Facts f;
  f.name = model_name(folder);
  const auto program = program_bytes(folder);
  RETURN_IF_ERROR(program);
  f.program_bytes = *program;
  {
    const auto model = ModelFolder::open(folder);
    RETURN_IF_ERROR(model);
    f.engine = model->engine();
    const auto graph = build_program(model->config());
    RETURN_IF_ERROR(graph);
    f.kv = kv_default(*graph);
    if (const auto asked = kv_format(args)) f.kv = {*asked, "as asked"};
  }
  const auto count = [&f](const StoredWeight& weight, int64_t copies) {
    for (FormatUse* use : {&f.formats[std::string(name(weight.format))], &f.all}) {
      ++use->weights;
      use->values += copies * weight.outputs() * weight.inputs();
      use->bytes += copies * weight.bytes().total();
    }
  };
  for (const StoredWeight& weight : f.engine.weights) count(weight, 1);
  for (const ExpertRecords& records : f.engine.experts)
    for (const StoredWeight& part : records.parts) count(part, records.experts);
  f.context = args.integer("--context").value_or(f.engine.max_context);
  if (f.context > f.engine.max_context)
    return error(Code::context_overflow, "--context {} is beyond the model's {} tokens: ask for less", f.context,
                 f.engine.max_context);
  LoadOptions options = load_options(args);
  options.max_context = f.context;
  options.mtp = true;  // as chat and serve have it
  options.on_no_mtp = [&f](const std::string& why) { f.drafts = "prompt lookup; no MTP layer: " + why; };
  const auto executable = load_executable(folder, options);
  RETURN_IF_ERROR(executable);
  f.need = (*executable)->need(f.context, 1);
  if (fused(args)) {
    const auto choice = choose_device(options.device);
    RETURN_IF_ERROR(choice);
    if (const auto remark = fused_remark(args, choice->device); !remark.empty()) tell("{}\n", remark);
  }
  if (dynamic_cast<const Mtp*>(executable->get()) != nullptr) f.drafts = "prompt lookup, MTP layer";
  return f;
}

std::string to_text(const Facts& f) {
  const auto& e = f.engine;
  std::string text =
      table({{"model", f.name},
             {"family", e.family},
             {"dimensions", fmt::format("{} layers, {} hidden, vocabulary of {}", e.layers, e.hidden, e.vocabulary)},
             {"context", fmt::format("{} tokens", e.max_context)},
             {"keys, values", fmt::format("{}: {}", name(f.kv.format), f.kv.reason)},
             {"drafts", f.drafts},
             {"made for", e.made_for},
             {"runs on", fmt::format("{} as it is (numbers: generations of Intel's NPU)", fmt::join(e.runs_on, ", "))},
             {"stop ids", fmt::format("{}", fmt::join(e.stop_ids, ", "))},
             {"source", fmt::format("{} {}", e.provenance.source, e.provenance.revision)},
             {"licence", e.provenance.licence},
             {"converted", fmt::format("{} by onw {}", e.provenance.date, e.provenance.onw_version)}});
  std::vector<std::vector<std::string>> rows = {{"FORMAT", "WEIGHTS", "VALUES", "SIZE", "BITS"}};
  const auto add = [&rows](const std::string& name, const FormatUse& use) {
    rows.push_back({name, fmt::format("{}", use.weights), fmt::format("{}", use.values), bytes_text(use.bytes),
                    fmt::format("{:.2f}", bits_per_weight(use))});
  };
  for (const auto& [name, use] : f.formats) add(name, use);
  add("all", f.all);
  return text + "\n" + table(rows) +
         fmt::format("\nmemory at {} tokens: {} weights + {} state + {} work + {} program = {}\n", f.context,
                     bytes_text(f.need.weights_bytes), bytes_text(f.need.state_bytes), bytes_text(f.need.work_bytes),
                     bytes_text(f.program_bytes), bytes_text(f.total_bytes()));
}

ordered_json to_json(const Facts& f) {
  const auto& e = f.engine;
  ordered_json formats = ordered_json::object();
  for (const auto& [name, use] : f.formats)
    formats[name] = {{"weights", use.weights},
                     {"values", use.values},
                     {"bytes", use.bytes},
                     {"bits_per_weight", bits_per_weight(use)}};
  return {{"name", f.name},
          {"family", e.family},
          {"layers", e.layers},
          {"hidden", e.hidden},
          {"vocabulary", e.vocabulary},
          {"max_context", e.max_context},
          {"kv", {{"format", name(f.kv.format)}, {"reason", f.kv.reason}}},
          {"drafts", f.drafts},
          {"made_for", e.made_for},
          {"runs_on", e.runs_on},
          {"stop_ids", e.stop_ids},
          {"provenance",
           {{"source", e.provenance.source},
            {"revision", e.provenance.revision},
            {"licence", e.provenance.licence},
            {"date", e.provenance.date},
            {"onw_version", e.provenance.onw_version}}},
          {"formats", std::move(formats)},
          {"bits_per_weight", bits_per_weight(f.all)},
          {"memory",
           {{"context", f.context},
            {"weights_bytes", f.need.weights_bytes},
            {"state_bytes", f.need.state_bytes},
            {"work_bytes", f.need.work_bytes},
            {"program_bytes", f.program_bytes},
            {"total_bytes", f.total_bytes()}}}};
}

KvFormat kv_of(const OpenedModel& model, const Args& args) {
  return kv_format(args).value_or(kv_default(model.program).format);
}

Result<CpuOptions> cpu_options(const OpenedModel& model, const Args& args, int64_t rows) {
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  return CpuOptions{.kv = kv_of(model, args),
                    .isa = *isa,
                    .threads = plan_threads(read_machine()).threads,
                    .max_step_rows = static_cast<int>(rows),
                    .max_context = args.integer("--context").value_or(0)};
}

// The graph as the CPU runs it; with --primitive as a family wrote it, lowered for so many rows.
Result<std::string> graph_text(const OpenedModel& model, const Args& args) {
  const int64_t rows = *args.integer("--graph");
  if (!args.has("--primitive")) {
    const auto weights = cpu_weights(model);
    RETURN_IF_ERROR(weights);
    const auto program = cpu_program(model.program, *weights, kv_of(model, args));
    if (!args.has("--dot")) return onw::print(program);
    std::string text;
    for (const auto& function : program.functions) text += dot(function);
    return text;
  }
  std::string text;
  for (const auto& function : model.program.functions) {
    const auto lowered =
        decompose(model.program, function, {.rows = rows, .cache_tokens = args.integer("--context").value_or(256)});
    RETURN_IF_ERROR(lowered);
    text += args.has("--dot") ? dot(*lowered) : onw::print(*lowered);
  }
  return text;
}

}  // namespace

Result<void> run_inspect(const Args& args) {
  for (const char* flag : {"--dot", "--primitive"})
    if (args.has(flag) && !args.has("--graph"))
      return error(Code::usage, "{} shows a graph another way, and needs --graph ROWS: onw inspect {} --graph 1 {}",
                   flag, args.positional(0), flag);
  if (args.has("--ir") != args.has("--out"))
    return error(Code::usage, "--ir and --out go together: onw inspect {} --ir 1 --out FOLDER", args.positional(0));
  const bool compiled = args.has("--graph") || args.has("--plan") || args.has("--ir");
  if (!compiled && is_published_file(args.positional(0))) return inspect_file(args.positional(0), args.has("--json"));
  if (compiled && is_published(args.positional(0)))
    return error(Code::usage, "--graph, --plan and --ir show a converted model, and {} is none yet: onw convert {} OUT",
                 args.positional(0), args.positional(0));
  const auto folder = locate_model(args.positional(0));
  RETURN_IF_ERROR(folder);
  if (!compiled) {
    const auto facts = examine(*folder, args);
    RETURN_IF_ERROR(facts);
    if (args.has("--json"))
      return print("{}\n", to_json(*facts).dump(2, ' ', false, ordered_json::error_handler_t::replace));
    return print("{}", to_text(*facts));
  }
  const auto model = open_model(*folder);
  RETURN_IF_ERROR(model);
  if (args.has("--graph")) {
    const auto text = graph_text(*model, args);
    RETURN_IF_ERROR(text);
    RETURN_IF_ERROR(write_output(*text));
  }
  if (args.has("--ir")) RETURN_IF_ERROR(write_inspected_graphs(*folder, args));
  if (!args.has("--plan")) return {};
  const auto options = cpu_options(*model, args, *args.integer("--plan"));
  RETURN_IF_ERROR(options);
  const auto weights = cpu_weights(*model);
  RETURN_IF_ERROR(weights);
  const auto plan = print_cpu_plan(model->program, *weights, *options);
  RETURN_IF_ERROR(plan);
  return write_output(*plan);
}

}  // namespace onw::cli
