// Writes a weights file from front to back, unit by unit, in bounded memory. An interrupted run can be gone on with.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/output_file.h"
#include "base/result.h"
#include "store/weight_plan.h"

namespace onw {

// Bytes of one weight, as many as the caller has ready: codes (or values), scales, minima, in the weight's layout.
struct WeightPiece {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> minima;
};

class WeightFileWriter {
 public:
  // Begins `path`. Where `journal` (a file beside it) tells of an earlier run with the same plan and `fingerprint` (of
  // everything that decides the contents), the units that it finished are kept: the caller goes on with next_unit().
  // Without a journal (an empty path) nothing is kept. Errors: io, no_space.
  static Result<WeightFileWriter> open(const std::filesystem::path& path, const std::filesystem::path& journal,
                                       std::vector<WeightUnit> units, std::string_view fingerprint);

  const WeightFilePlan& plan() const { return plan_; }
  size_t next_unit() const { return unit_; }
  const std::vector<std::string>& kept_notes() const { return kept_notes_; }  // of the units that were kept

  // The next bytes of weight `index` of the current unit. Weights come in order, each whole before the next.
  Result<void> append(size_t index, const WeightPiece& piece);

  // After the last weight. `note` is kept for a later run (what the report said of the unit).
  Result<void> finish_unit(std::string_view note = {});

  // After the last unit: the footer; the file is on the disk then. Returns the SHA-256 of the file in hexadecimal.
  Result<std::string> finish();

 private:
  Result<void> restart();
  Result<void> keep_units();
  Result<void> put(std::span<const std::byte> bytes);
  Result<void> put_pads();
  Result<void> record_finished_units();

  std::filesystem::path path_, journal_;
  std::string fingerprint_;
  std::vector<WeightUnit> units_;
  WeightFilePlan plan_;
  OutputFile file_;
  Digest hash_;
  size_t unit_ = 0;
  size_t tensor_ = 0;                         // of the plan, the next to be written
  std::vector<std::vector<std::byte>> late_;  // scales and minima of the unit, which follow all its codes
  std::vector<int64_t> codes_written_;
  std::vector<std::string> kept_notes_;

  struct Finished {
    int64_t end = 0;
    std::string note;
  };
  std::vector<Finished> finished_;  // units that are complete, but perhaps not on the disk
  size_t recorded_ = 0;
};

}  // namespace onw
