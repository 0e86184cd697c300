#include "convert/convert.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/temp_folder.h"
#include "base/version.h"
#include "convert/equalise_inputs.h"
#include "convert/importance.h"
#include "convert/mtp_weights.h"
#include "convert/write_experts.h"
#include "convert/write_weight.h"
#include "graph/json.h"
#include "models/registry.h"
#include "models/residual.h"
#include "store/folder_writer.h"
#include "store/model_folder.h"
#include "store/runs_on.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using Unit = std::vector<WeightJob>;

// Weights of a group share a unit where format, layout and inputs agree; so do the biases that belong to them.
std::string unit_key(const WeightDecl& w, const Program& program, const FormatChoice& choice) {
  std::string group = w.group;
  if (constexpr std::string_view kBias = ".bias"; group.empty() && w.name.ends_with(kBias))
    if (const WeightDecl* matrix = program.weight(w.name.substr(0, w.name.size() - kBias.size())))
      if (!matrix->group.empty()) group = matrix->group + std::string(kBias);
  if (group.empty()) return w.name;
  return fmt::format("{} {} {} {}", group, name(choice.format), name(choice.layout),
                     w.shape.size() > 1 ? w.shape[1] : 1);
}

// A fused tensor is taken in parts; rows of which nobody takes any mean that config.json is of another model.
Result<void> check_rows_are_taken(const std::vector<Unit>& units) {
  std::map<std::string, int64_t> taken;  // rows, by tensor
  const auto end_of = [](const WeightJob& job) {
    const int64_t rows = job.weight->shape[0];
    return job.from->fold == Fold::head_half ? 2 * rows : job.from->begin + rows;
  };
  for (const Unit& unit : units)
    for (const WeightJob& job : unit) taken[job.tensor.name] = std::max(taken[job.tensor.name], end_of(job));
  for (const Unit& unit : units)
    for (const WeightJob& job : unit)
      if (const SourceTensor& t = job.tensor; job.weight->shape.size() > 1 && taken[t.name] != t.rows())
        return error(Code::bad_format,
                     "{}: '{}' is [{}], config.json makes '{}' [{}] of it. The files do not belong together: download "
                     "them again",
                     t.file.string(), t.name, fmt::join(t.shape, ", "), job.weight->name,
                     fmt::join(job.weight->shape, ", "));
  return {};
}

FormatRequest format_request(const Program& program, const ConvertOptions& options) {
  const bool has_head =
      std::ranges::any_of(program.weights, [](const WeightDecl& w) { return w.role == WeightRole::head; });
  return {options.made_for, options.format, !has_head};
}

// The unit of a group stands where its first weight does.
Result<std::vector<Unit>> plan_units(const Program& program, const ModelSource& source, const ConvertOptions& options,
                                     const Importance& importance = {}) {
  const FormatRequest request = format_request(program, options);
  std::vector<Unit> units;
  std::map<std::string, size_t> unit_of;
  for (const WeightDecl& w : program.weights) {
    if (w.role == WeightRole::expert) continue;  // plan_experts
    auto tensor = tensor_of(source, w);
    RETURN_IF_ERROR(tensor);
    FormatChoice choice = choose_format(w, tensor->type, source.is_quantised(), request);
    const auto [at, is_new] = unit_of.emplace(unit_key(w, program, choice), units.size());
    if (is_new) units.emplace_back();
    const auto counts = importance.of(w);
    RETURN_IF_ERROR(counts);
    units[at->second].push_back({&w, std::move(*tensor), &source.source_of(w), std::move(choice), *counts});
  }
  RETURN_IF_ERROR(check_rows_are_taken(units));
  return units;
}

// Norms none of whose readers keeps codes of the source or has fewer than 8 bits, and the sizes of whose channels the
// importance file tells. Factors within a group of 4-bit weights cost more than their activations gain
// (docs/quality.md).
Result<std::vector<InputAlteration>> inputs_to_equalise(const Program& program, const std::vector<Unit>& units,
                                                        const Importance& importance) {
  std::set<std::string> left;
  for (const Unit& unit : units)
    for (const WeightJob& job : unit)
      if (job.choice.take_over || info(job.choice.format).bits < 8) left.insert(job.weight->name);
  std::vector<InputAlteration> inputs;
  for (NormReaders& found : norm_readers(program)) {
    if (std::ranges::any_of(found.readers, [&](const auto& name) { return left.contains(name); })) continue;
    const auto squares = importance.of(*program.weight(found.readers.front()));
    RETURN_IF_ERROR(squares);
    auto exponents = input_exponents(*squares);
    if (!exponents.empty()) inputs.push_back({std::move(found), std::move(exponents)});
  }
  return inputs;
}

std::vector<WeightUnit> stored_units(const std::vector<Unit>& units) {
  std::vector<WeightUnit> stored;
  for (const Unit& unit : units) {
    stored.emplace_back();
    for (const WeightJob& job : unit)
      stored.back().weights.push_back({job.weight->name, job.choice.format, job.choice.layout, job.weight->shape});
  }
  return stored;
}

// A unit's reports as the journal keeps them, so that a run that goes on can print them all.
json to_json(const TensorReport& r) {
  return {{"name", r.name},           {"type", r.source_type},    {"shape", r.shape},
          {"format", name(r.format)}, {"layout", name(r.layout)}, {"rms", r.relative_rms},
          {"nf4", r.nf4_rounding},    {"exact", r.codes_exact},   {"why", r.why},
          {"altered", r.altered}};
}

TensorReport report_from(const json& j) {
  TensorReport r{.name = find_string(j, "name").value_or(""),
                 .source_type = find_string(j, "type").value_or(""),
                 .shape = find_ints(j, "shape")};
  r.format = weight_format(find_string(j, "format").value_or("")).value_or(WeightFormat::f32);
  r.layout = layout(find_string(j, "layout").value_or("")).value_or(Layout::rows);
  r.relative_rms = find_number(j, "rms").value_or(0);
  r.nf4_rounding = find_number(j, "nf4").value_or(0);
  r.codes_exact = find_bool(j, "exact").value_or(false);
  r.why = find_string(j, "why").value_or("");
  r.altered = find_string(j, "altered").value_or("");
  return r;
}

// Writes the units that are still missing, and reports every weight of all of them.
class Run {
 public:
  Run(FolderWriter& out, WeightRules& rules, const ConvertObserver& observer)
      : out_(out.weights()), experts_(out.experts()), rules_(rules), observer_(observer) {
    progress_.bytes_total = out.bytes();
    for (const std::string& note : out_.kept_notes()) keep(note);
    for (const std::string& note : experts_.kept_notes()) keep(note);
  }

  Result<void> write(const std::vector<Unit>& units, const std::vector<ExpertJob>& experts) {
    for (const TensorReport& r : reports_)
      if (!tell(&r)) return cancelled();
    RETURN_IF_ERROR(write_units(units));
    for (size_t u = experts_.next_unit(); u < experts.size(); ++u) {
      auto reports = write_experts(experts[u], experts_, [&](int64_t bytes) {
        progress_.bytes_done += bytes;
        return tell(nullptr);
      });
      RETURN_IF_ERROR(reports);
      json note = json::array();
      for (TensorReport& report : *reports) {
        note.push_back(to_json(report));
        reports_.push_back(std::move(report));
        if (!tell(&reports_.back())) return cancelled();
      }
      RETURN_IF_ERROR(experts_.finish_unit(note.dump()));
    }
    return {};
  }

  std::vector<TensorReport> take_reports() { return std::move(reports_); }

 private:
  Result<void> write_units(const std::vector<Unit>& units) {
    for (size_t u = out_.next_unit(); u < units.size(); ++u) {
      json note = json::array();
      for (size_t i = 0; i < units[u].size(); ++i) {
        const auto alteration = rules_.of(*units[u][i].weight);
        RETURN_IF_ERROR(alteration);
        auto report = write_weight(units[u][i], *alteration, i, out_, [&](int64_t bytes) {
          progress_.bytes_done += bytes;
          return tell(nullptr);
        });
        RETURN_IF_ERROR(report);
        note.push_back(to_json(*report));
        reports_.push_back(std::move(*report));
        if (!tell(&reports_.back())) return cancelled();
      }
      RETURN_IF_ERROR(out_.finish_unit(note.dump()));
    }
    return {};
  }

  void keep(const std::string& note) {
    const auto list = parse_json(note, "journal");
    if (!list || !list->is_array()) return;
    for (const json& item : *list) {
      reports_.push_back(report_from(item));
      const TensorReport& r = reports_.back();
      progress_.bytes_done += StoredWeight{r.name, r.format, r.layout, r.shape}.bytes().total();
    }
    progress_.bytes_kept = progress_.bytes_done;
  }

  bool tell(const TensorReport* report) {
    progress_.tensor = report;
    return !observer_ || observer_(progress_);
  }
  static Failure cancelled() { return error(Code::cancelled, "stopped; the same command goes on from here"); }

  WeightFileWriter &out_, &experts_;
  WeightRules& rules_;
  const ConvertObserver& observer_;
  ConvertProgress progress_;
  std::vector<TensorReport> reports_;
};

std::string now_utc() {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto day = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(seconds - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

Provenance provenance_of(const ModelSource& source, const Provenance& given) {
  Provenance p = source.provenance();
  if (!given.source.empty()) p.source = given.source;
  if (!given.revision.empty()) p.revision = given.revision;
  if (!given.licence.empty()) p.licence = given.licence;
  p.command = given.command;
  p.source_key = given.source_key;
  p.date = given.date.empty() ? now_utc() : given.date;
  p.onw_version = kVersion;
  return p;
}

EngineInfo engine_info(const Program& program, const ModelSource& source, const ConvertOptions& options,
                       const std::vector<Unit>& units) {
  EngineInfo e{.family = program.family,
               .layers = program.layers,
               .hidden = program.hidden,
               .vocabulary = program.vocabulary,
               .max_context = program.max_context,
               .made_for = options.made_for};
  std::vector<WeightFormat> formats;
  for (const Unit& unit : units)
    for (const WeightJob& job : unit)
      if (job.weight->role != WeightRole::vector) formats.push_back(job.choice.format);
  e.runs_on = runs_on(formats);  // experts are computed by the host, whatever the device
  e.stop_ids = source.stop_ids();
  std::erase_if(e.stop_ids, [&](int64_t id) { return id >= program.vocabulary; });
  e.generation = source.generation();
  e.provenance = provenance_of(source, options.provenance);
  return e;
}

// Tokens that end an answer lie in the vocabulary; where all that are named do not, no answer would ever end.
Result<Program> program_of(const ModelSource& source) {
  auto program = build_program(source.config());
  if (!program) return failure(std::move(program), source.path().string());
  const auto stops = source.stop_ids();
  const auto fits = [&](int64_t id) { return id < program->vocabulary; };
  if (!stops.empty() && std::ranges::none_of(stops, fits))
    return error(Code::bad_format,
                 "{}: every token that ends an answer ({}) lies beyond the vocabulary of {}. config.json and the other "
                 "files are of different models: take the files of one download",
                 source.path().string(), fmt::join(stops, ", "), program->vocabulary);
  return program;
}

std::vector<std::string> unused_tensors(const ModelSource& source, const std::vector<Unit>& units,
                                        const std::vector<ExpertJob>& experts) {
  std::set<std::string> used;
  for (const Unit& unit : units)
    for (const WeightJob& job : unit) used.insert(job.tensor.name);
  for (const ExpertJob& job : experts)
    for (const ExpertPart& part : job.parts)
      for (const SourceTensor& tensor : part.tensors) {
        used.insert(tensor.name);
        if (const size_t at = tensor.name.rfind("_blocks"); !tensor.scales.empty() && at != tensor.name.npos)
          used.insert(tensor.name.substr(0, at) + "_scales");
      }
  std::vector<std::string> unused;
  for (std::string& name : source.tensor_names())
    if (!used.contains(name)) unused.push_back(std::move(name));
  return unused;
}

// The source's files, config.json with what the rules want to be known.
Result<void> write_config_and_text(const ModelSource& source, const ConvertOptions& options, FolderWriter& writer) {
  RETURN_IF_ERROR(source.write_files(writer.folder()));
  if (options.residual_shift == 0) return {};
  json config = source.config();
  config[kResidualShiftKey] = options.residual_shift;
  return writer.write("config.json", dump_json(config));
}

Result<Importance> importance_of(const Program& program, const ConvertOptions& options) {
  if (options.importance.empty()) return Importance();
  auto importance = Importance::open(options.importance);
  RETURN_IF_ERROR(importance);
  RETURN_IF_ERROR(importance->check_knows(program));
  return importance;
}

// A file that changes no weight was not what was meant.
Result<void> check_importance_counts(const std::vector<Unit>& units, const std::vector<InputAlteration>& inputs,
                                     const ConvertOptions& options) {
  const auto weighed = [](const WeightJob& job) {
    return !job.importance.empty() && !job.choice.take_over && searches_scales(job.choice.format);
  };
  if (options.importance.empty() || !inputs.empty()) return {};
  for (const Unit& unit : units)
    if (std::ranges::any_of(unit, weighed)) return {};
  return error(
      Code::invalid_argument,
      "{}: would change nothing. It weighs what is quantised to 4 bits without a minimum and equalises inputs "
      "of what is quantised to 8 bits anew; every weight that it names keeps the source's codes or gets another "
      "format. Give --format q4g128, or leave it out",
      options.importance.string());
}

// What an interrupted run must have in common with the one that goes on.
Result<std::string> fingerprint_of(const ModelSource& source, const ConvertOptions& options) {
  std::string state;
  if (!options.importance.empty()) {
    const auto file = file_fingerprint(options.importance);
    RETURN_IF_ERROR(file);
    state = *file;
  }
  return fmt::format("{}{} {} {} {}\n{}", kVersion, options.made_for,
                     options.format ? name(*options.format) : "default", options.residual_shift, state,
                     source.fingerprint());
}

// A folder has its text files already; those of a GGUF file are made of its metadata.
bool has_text_files(const ModelSource& source) {
  std::error_code failed;
  return fs::is_directory(source.path(), failed);
}

// What of the new folder is no weight: wrong, it is refused before the long work begins.
Result<void> write_small_files(const ModelSource& source, const Program& program, const ConvertOptions& options,
                               FolderWriter& writer) {
  RETURN_IF_ERROR(write_config_and_text(source, options, writer));
  if (!options.check_text || has_text_files(source)) return {};
  auto checked = options.check_text(writer.folder(), program.vocabulary);
  return checked ? std::move(checked) : failure(std::move(checked), source.path().string());
}

}  // namespace

namespace {

Result<void> alter_experts(WeightRules& rules, std::vector<ExpertJob>& jobs) {
  for (ExpertJob& job : jobs)
    for (ExpertPart& part : job.parts) {
      auto altered = rules.of(*part.weight);
      RETURN_IF_ERROR(altered);
      part.altered = std::move(*altered);
    }
  return {};
}

// What a run that was stopped, or had no room, has written is gone on with; weights that were refused will be again.
bool can_go_on(Code why) { return why == Code::cancelled || why == Code::io || why == Code::no_space; }

}  // namespace

Result<ConvertSummary> convert(const fs::path& from, const fs::path& out, const ConvertOptions& options,
                               const ConvertObserver& observer) {
  const auto source = open_source(from);
  RETURN_IF_ERROR(source);
  auto program = program_of(**source);
  RETURN_IF_ERROR(program);
  MtpWeights mtp = find_mtp_weights(*program, **source, format_request(*program, options), options.residual_shift);
  std::ranges::move(mtp.weights, std::back_inserter(program->weights));
  const auto importance = importance_of(*program, options);
  RETURN_IF_ERROR(importance);
  const auto units = plan_units(*program, **source, options, *importance);
  RETURN_IF_ERROR(units);
  auto experts = plan_experts(*program, **source, format_request(*program, options));
  RETURN_IF_ERROR(experts);
  const auto inputs = inputs_to_equalise(*program, *units, *importance);
  RETURN_IF_ERROR(inputs);
  RETURN_IF_ERROR(check_importance_counts(*units, *inputs, options));
  auto rules = WeightRules::make(*program, **source, options.residual_shift, *inputs);
  RETURN_IF_ERROR(rules);
  RETURN_IF_ERROR(alter_experts(*rules, *experts));

  if (options.check_text && has_text_files(**source)) RETURN_IF_ERROR(options.check_text(from, program->vocabulary));

  const auto fingerprint = fingerprint_of(**source, options);
  RETURN_IF_ERROR(fingerprint);
  std::vector<ExpertRecords> records;
  for (const ExpertJob& job : *experts) records.push_back(job.records);
  auto writer = FolderWriter::begin(out, stored_units(*units), *fingerprint, options.replace, std::move(records));
  RETURN_IF_ERROR(writer);
  if (auto written = write_small_files(**source, *program, options, *writer); !written) {
    writer->abandon();
    return failure(std::move(written));
  }
  ConvertSummary summary{.folder = out, .bytes = writer->bytes()};
  {
    Run run(*writer, *rules, observer);
    if (auto written = run.write(*units, *experts); !written) {
      if (!can_go_on(written.error().code)) writer->abandon(/*with_finished=*/true);
      return failure(std::move(written));
    }
    summary.tensors = run.take_reports();
  }
  RETURN_IF_ERROR(writer->finish(engine_info(*program, **source, options, *units)));
  if (!mtp.left_out.empty()) summary.mtp_left_out = std::move(mtp.left_out);
  summary.unused = unused_tensors(**source, *units, *experts);
  return summary;
}

Result<PublishedFacts> check_published(const fs::path& from, const TextCheck& check_text) {
  const auto source = open_source(from);
  RETURN_IF_ERROR(source);
  const auto program = program_of(**source);
  RETURN_IF_ERROR(program);
  const auto units = plan_units(*program, **source, {});
  RETURN_IF_ERROR(units);
  const auto experts = plan_experts(*program, **source, format_request(*program, {}));
  RETURN_IF_ERROR(experts);
  const TempFolder folder;
  if (folder.path().empty())
    return error(Code::io, "cannot make a folder in {}. Is TMPDIR right, and the disk not full?",
                 fs::temp_directory_path().string());
  // What a GGUF file tells of its tokenizer is not in the form that is loaded.
  if (!has_text_files(**source)) RETURN_IF_ERROR((*source)->write_files(folder.path()));
  auto text = check_text(has_text_files(**source) ? from : folder.path(), program->vocabulary);
  if (!text) return has_text_files(**source) ? failure(std::move(text)) : failure(std::move(text), from.string());
  PublishedFacts facts{.family = program->family};
  std::set<std::string> seen;
  for (const Unit& unit : *units)
    for (const WeightJob& job : unit) {
      ++facts.weights;
      if (seen.insert(job.tensor.name).second) facts.bytes += static_cast<int64_t>(job.tensor.bytes.size());
    }
  for (const ExpertJob& job : *experts)
    for (const ExpertPart& part : job.parts) {
      ++facts.weights;
      const bool is_new = seen.insert(part.tensors.front().name).second;
      for (const SourceTensor& t : part.tensors) facts.bytes += is_new ? static_cast<int64_t>(t.bytes.size()) : 0;
    }
  return facts;
}

std::string to_line(const TensorReport& r) {
  std::string line = fmt::format("{}  {} -> {} {} [{}]", r.name, r.source_type, name(r.format), name(r.layout),
                                 fmt::join(r.shape, ", "));
  if (r.codes_exact) line += r.relative_rms == 0 ? "  exact" : "  codes exact";
  if (r.relative_rms > 0) line += fmt::format("  error {:.3g}", r.relative_rms);
  if (r.nf4_rounding > 0) line += fmt::format("  (rounded levels {:.3g})", r.nf4_rounding);
  if (!r.altered.empty()) line += fmt::format("  [{}]", r.altered);
  if (!r.why.empty()) line += fmt::format("  ({})", r.why);
  return line;
}

}  // namespace onw
