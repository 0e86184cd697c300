#include "store/folder_writer.h"

#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "graph/json.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = "journal", kExpertsJournal = "journal.experts";

fs::path beside(const fs::path& out, std::string_view suffix) {
  fs::path path = out;
  return path += suffix;
}

// Without a slash at its end, and with a name that others can stand beside: "." has none.
fs::path with_name(const fs::path& path) {
  const fs::path named = path.has_filename() ? path : path.parent_path();
  return named.filename() == "." || named.filename() == ".." ? fs::absolute(named).lexically_normal() : named;
}

// Whether all that lies at `path` is a model folder, so that nothing else is lost with it.
bool is_only_a_model(const fs::path& path) {
  std::error_code failed;
  if (fs::symlink_status(path, failed).type() != fs::file_type::directory || !fs::exists(path / kEngineFile, failed))
    return false;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed))
    if (std::error_code unknown; !entry->is_regular_file(unknown)) return false;
  return !failed;
}

}  // namespace

Result<FolderWriter> FolderWriter::begin(const fs::path& out, std::vector<WeightUnit> units,
                                         std::string_view fingerprint, bool replace,
                                         std::vector<ExpertRecords> experts) {
  FolderWriter writer;
  writer.records_ = std::move(experts);
  std::vector<WeightUnit> expert_units;
  for (const ExpertRecords& r : writer.records_) expert_units.push_back({{r.stored()}});
  writer.out_ = with_name(out);
  writer.partial_ = beside(writer.out_, ".partial");
  writer.units_ = units;
  const auto refuse_existing = [&]() -> Result<void> {
    std::error_code ignored;
    if (fs::symlink_status(writer.out_, ignored).type() == fs::file_type::not_found) return {};
    if (replace && is_only_a_model(writer.out_)) return {};
    if (replace)
      return error(Code::usage,
                   "{}: is not a model folder alone, and would be lost: --replace takes the place of a model folder "
                   "only. Choose another name",
                   writer.out_.string());
    return error(Code::usage, "{}: exists already. Choose another name, or let it be replaced (--replace)",
                 writer.out_.string());
  };
  RETURN_IF_ERROR(refuse_existing());  // before anything is made beside it
  std::error_code failed;
  fs::create_directories(writer.partial_, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", writer.partial_.string(), failed.message());

  auto lock = FileLock::try_acquire(beside(writer.out_, ".lock"));
  RETURN_IF_ERROR(lock);
  if (!lock->held())
    return error(Code::io, "{}: another process is making it. Wait for that one, or choose another name",
                 writer.out_.string());
  writer.lock_ = std::move(*lock);
  RETURN_IF_ERROR(refuse_existing());  // another process may have made it meanwhile

  const fs::path file = writer.partial_ / kWeightsFile, expert_file = writer.partial_ / kExpertsFile;
  const int64_t there = disk_bytes(file).value_or(0) + disk_bytes(expert_file).value_or(0);
  const int64_t needed =
      plan_weight_file(units).file_bytes + (expert_units.empty() ? 0 : plan_weight_file(expert_units).file_bytes);
  RETURN_IF_ERROR(require_free_space(writer.partial_, needed - there, "The converted model"));
  auto weights = WeightFileWriter::open(file, writer.partial_ / kJournal, std::move(units), fingerprint);
  RETURN_IF_ERROR(weights);
  writer.weights_ = std::move(*weights);
  if (expert_units.empty()) return writer;
  auto records =
      WeightFileWriter::open(expert_file, writer.partial_ / kExpertsJournal, std::move(expert_units), fingerprint);
  RETURN_IF_ERROR(records);
  writer.experts_ = std::move(*records);
  return writer;
}

int64_t FolderWriter::bytes() const {
  return weights_.plan().file_bytes + (records_.empty() ? 0 : experts_.plan().file_bytes);
}

Result<void> FolderWriter::write(std::string_view name, std::string_view text) {
  return write_file_atomically(partial_ / name, text);
}

namespace {

// Ends a file of weights, and what engine.json says of it.
Result<FileDigest> finish_file(WeightFileWriter& writer, const fs::path& file) {
  auto digest = writer.finish();
  RETURN_IF_ERROR(digest);
  const auto modified = modification_time_ns(file);
  RETURN_IF_ERROR(modified);
  const auto mapped = MappedFile::open(file);
  RETURN_IF_ERROR(mapped);
  return FileDigest{writer.plan().file_bytes, *modified, *digest, sampled_digest(mapped->bytes())};
}

}  // namespace

Result<void> FolderWriter::finish(EngineInfo engine) {
  for (const auto& [name, writer] : {std::pair{kWeightsFile, &weights_}, std::pair{kExpertsFile, &experts_}}) {
    if (writer == &experts_ && records_.empty()) continue;
    const auto file = finish_file(*writer, partial_ / name);
    RETURN_IF_ERROR(file);
    engine.files[std::string(name)] = *file;
  }
  engine.experts = records_;
  engine.weights.clear();
  for (const WeightUnit& unit : units_)
    engine.weights.insert(engine.weights.end(), unit.weights.begin(), unit.weights.end());
  RETURN_IF_ERROR(write(kEngineFile, dump_json(to_json(engine))));

  std::error_code failed;
  const fs::path old = beside(out_, ".old");
  fs::remove_all(old, failed);
  if (fs::exists(out_, failed)) RETURN_IF_ERROR(rename_durably(out_, old));
  RETURN_IF_ERROR(rename_durably(partial_, out_));
  for (const std::string_view journal : {kJournal, kExpertsJournal}) fs::remove(out_ / journal, failed);
  fs::remove_all(old, failed);
  fs::remove(beside(out_, ".lock"), failed);
  return {};
}

void FolderWriter::abandon(bool with_finished) {
  if (!with_finished && (weights_.next_unit() > 0 || experts_.next_unit() > 0)) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  fs::remove(beside(out_, ".lock"), ignored);
}

}  // namespace onw
