#include "store/folder_writer.h"

#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "graph/json.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = "journal";

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
                                         std::string_view fingerprint, bool replace) {
  FolderWriter writer;
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

  const fs::path file = writer.partial_ / kWeightsFile;
  const int64_t there = disk_bytes(file).value_or(0);
  RETURN_IF_ERROR(
      require_free_space(writer.partial_, plan_weight_file(units).file_bytes - there, "The converted model"));
  auto weights = WeightFileWriter::open(file, writer.partial_ / kJournal, std::move(units), fingerprint);
  RETURN_IF_ERROR(weights);
  writer.weights_ = std::move(*weights);
  return writer;
}

Result<void> FolderWriter::write(std::string_view name, std::string_view text) {
  return write_file_atomically(partial_ / name, text);
}

Result<void> FolderWriter::finish(EngineInfo engine) {
  const fs::path file = partial_ / kWeightsFile;
  auto digest = weights_.finish();
  RETURN_IF_ERROR(digest);
  const auto modified = modification_time_ns(file);
  RETURN_IF_ERROR(modified);
  {
    const auto mapped = MappedFile::open(file);
    RETURN_IF_ERROR(mapped);
    engine.files[std::string(kWeightsFile)] = {weights_.plan().file_bytes, *modified, *digest,
                                               sampled_digest(mapped->bytes())};
  }
  engine.weights.clear();
  for (const WeightUnit& unit : units_)
    engine.weights.insert(engine.weights.end(), unit.weights.begin(), unit.weights.end());
  RETURN_IF_ERROR(write(kEngineFile, dump_json(to_json(engine))));

  std::error_code failed;
  const fs::path old = beside(out_, ".old");
  fs::remove_all(old, failed);
  if (fs::exists(out_, failed)) RETURN_IF_ERROR(rename_durably(out_, old));
  RETURN_IF_ERROR(rename_durably(partial_, out_));
  fs::remove(out_ / kJournal, failed);
  fs::remove_all(old, failed);
  fs::remove(beside(out_, ".lock"), failed);
  return {};
}

void FolderWriter::abandon() {
  if (weights_.next_unit() > 0) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  fs::remove(beside(out_, ".lock"), ignored);
}

}  // namespace onw
