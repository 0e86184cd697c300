#include "store/weight_file_writer.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "graph/json.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Between two syncs at least so much is written: a sync waits for the disk.
constexpr int64_t kSyncBytes = 64 << 20;

std::string key_of(const WeightFilePlan& plan, std::string_view fingerprint) {
  Digest hash;
  hash.add(plan.header);
  hash.add(fingerprint);
  return hash.hex();
}

// The lines of a journal: {"key"} first, then {"end", "note"} for each unit. Stops at the first that is not whole.
std::vector<json> journal_lines(const fs::path& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    auto parsed = parse_json(line, "journal");
    if (!parsed || !parsed->is_object()) break;
    lines.push_back(std::move(*parsed));
  }
  return lines;
}

}  // namespace

Result<WeightFileWriter> WeightFileWriter::open(const fs::path& path, const fs::path& journal,
                                                std::vector<WeightUnit> units, std::string_view fingerprint) {
  WeightFileWriter writer;
  writer.path_ = path;
  writer.journal_ = journal;
  writer.units_ = std::move(units);
  writer.plan_ = plan_weight_file(writer.units_);
  writer.fingerprint_ = key_of(writer.plan_, fingerprint);
  if (!journal.empty()) RETURN_IF_ERROR(writer.keep_units());
  if (writer.unit_ == 0) RETURN_IF_ERROR(writer.restart());
  const size_t weights = writer.unit_ < writer.units_.size() ? writer.units_[writer.unit_].weights.size() : 0;
  writer.late_.assign(2 * weights, {});
  writer.codes_written_.assign(weights, 0);
  return writer;
}

Result<void> WeightFileWriter::restart() {
  auto file = OutputFile::open(path_);
  RETURN_IF_ERROR(file);
  file_ = std::move(*file);
  if (!journal_.empty()) RETURN_IF_ERROR(write_file_atomically(journal_, json{{"key", fingerprint_}}.dump() + "\n"));
  return put(std::as_bytes(std::span(plan_.header)));
}

// Takes over the finished units that the journal tells of and the file really has.
Result<void> WeightFileWriter::keep_units() {
  const auto lines = journal_lines(journal_);
  if (lines.empty() || find_string(lines[0], "key") != fingerprint_) return {};
  std::error_code failed;
  const auto on_disk = static_cast<int64_t>(fs::file_size(path_, failed));
  if (failed) return {};
  int64_t keep = 0;
  for (size_t i = 1; i < lines.size() && i <= units_.size(); ++i) {
    const auto end = find_int(lines[i], "end");
    if (!end || *end > on_disk || *end < keep) break;
    keep = *end;
    finished_.push_back({keep, find_string(lines[i], "note").value_or("")});
    kept_notes_.push_back(finished_.back().note);
  }
  if (keep == 0) return {};
  {
    const auto mapped = MappedFile::open(path_);
    RETURN_IF_ERROR(mapped);
    hash_.add(mapped->bytes().first(keep));
  }
  auto file = OutputFile::open(path_, keep);
  RETURN_IF_ERROR(file);
  file_ = std::move(*file);
  unit_ = recorded_ = finished_.size();
  while (tensor_ < plan_.tensors.size() && plan_.tensors[tensor_].begin < keep) ++tensor_;
  return {};
}

Result<void> WeightFileWriter::put(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  return file_.write(bytes);
}

// Goes over the pads that stand before the next tensor.
Result<void> WeightFileWriter::put_pads() {
  for (; tensor_ < plan_.tensors.size() && plan_.tensors[tensor_].name.starts_with("pad."); ++tensor_) {
    const std::vector<std::byte> zeros(plan_.tensors[tensor_].end - plan_.tensors[tensor_].begin);
    RETURN_IF_ERROR(put(zeros));
  }
  return {};
}

Result<void> WeightFileWriter::append(size_t index, const WeightPiece& piece) {
  CHECK(unit_ < units_.size() && index < codes_written_.size());
  CHECK(index == 0 || codes_written_[index - 1] == units_[unit_].weights[index - 1].bytes().codes);
  if (codes_written_[index] == 0) RETURN_IF_ERROR(put_pads());
  RETURN_IF_ERROR(put(piece.codes));
  codes_written_[index] += static_cast<int64_t>(piece.codes.size());
  const int64_t planned = units_[unit_].weights[index].bytes().codes;
  CHECK(codes_written_[index] <= planned);
  if (codes_written_[index] == planned) ++tensor_;
  auto& scales = late_[index];
  auto& minima = late_[codes_written_.size() + index];
  scales.insert(scales.end(), piece.scales.begin(), piece.scales.end());
  minima.insert(minima.end(), piece.minima.begin(), piece.minima.end());
  return {};
}

Result<void> WeightFileWriter::finish_unit(std::string_view note) {
  const auto& weights = units_[unit_].weights;
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightBytes planned = weights[i].bytes();
    CHECK(codes_written_[i] == planned.codes);
    CHECK(static_cast<int64_t>(late_[i].size()) == planned.scales);
    CHECK(static_cast<int64_t>(late_[weights.size() + i].size()) == planned.minima);
  }
  for (const auto& part : late_) {
    if (part.empty()) continue;
    RETURN_IF_ERROR(put_pads());
    CHECK(plan_.tensors[tensor_].begin == file_.position());
    RETURN_IF_ERROR(put(part));
    ++tensor_;
  }
  finished_.push_back({file_.position(), std::string(note)});
  ++unit_;
  const size_t next = unit_ < units_.size() ? units_[unit_].weights.size() : 0;
  late_.assign(2 * next, {});
  codes_written_.assign(next, 0);
  return record_finished_units();
}

// A unit counts only when its bytes are on the disk: first the sync, then the journal.
Result<void> WeightFileWriter::record_finished_units() {
  if (journal_.empty()) return {};
  size_t ready = recorded_;
  while (ready < finished_.size() && finished_[ready].end <= file_.written()) ++ready;
  const int64_t last = recorded_ == 0 ? 0 : finished_[recorded_ - 1].end;
  if (ready == recorded_ || file_.written() - last < kSyncBytes) return {};
  RETURN_IF_ERROR(file_.sync());
  std::ofstream journal(journal_, std::ios::app);
  for (; recorded_ < ready; ++recorded_)
    journal << dump_json({{"end", finished_[recorded_].end}, {"note", finished_[recorded_].note}}, -1) << "\n";
  journal.flush();
  if (!journal) return error(Code::io, "{}: cannot write. Is the disk full?", journal_.string());
  return {};
}

Result<std::string> WeightFileWriter::finish() {
  CHECK(unit_ == units_.size());
  RETURN_IF_ERROR(put_pads());
  const std::string footer = footer_of(plan_.header, plan_.file_bytes);
  RETURN_IF_ERROR(put(std::as_bytes(std::span(footer))));
  CHECK(file_.position() == plan_.file_bytes);
  RETURN_IF_ERROR(file_.finish());
  return hash_.hex();
}

}  // namespace onw
