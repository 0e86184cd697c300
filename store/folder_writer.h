// Makes a model folder: under a temporary name until everything is on the disk, then renamed at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_lock.h"
#include "base/result.h"
#include "store/engine_json.h"
#include "store/weight_file_writer.h"

namespace onw {

class FolderWriter {
 public:
  // Works in `<out>.partial`; `out` appears when finish() succeeds. What an interrupted run with the same units and
  // fingerprint left there is gone on with. Errors: usage where `out` exists and `replace` is false, or
  // where it is anything but a model folder (a source, a link, a folder with other things in it); io where another
  // process is making it, no_space where the disk cannot hold it.
  // Where there are experts, their records are a second file, one unit a layer.
  static Result<FolderWriter> begin(const std::filesystem::path& out, std::vector<WeightUnit> units,
                                    std::string_view fingerprint, bool replace = false,
                                    std::vector<ExpertRecords> experts = {});

  WeightFileWriter& weights() { return weights_; }
  WeightFileWriter& experts() { return experts_; }                  // of no use without experts
  int64_t bytes() const;                                            // of both files
  const std::filesystem::path& folder() const { return partial_; }  // where the files lie until finish()

  // A small file of the folder (config.json).
  Result<void> write(std::string_view name, std::string_view text);

  // Finishes the weights, writes engine.json (its weights, experts and digests are filled in here) and gives the folder
  // its name. Errors: io, no_space.
  Result<void> finish(EngineInfo engine);

  // Instead of finish(), where it turns out that the folder must not be made: what holds no weight yet goes away, and
  // what does where nobody can go on with it.
  void abandon(bool with_finished = false);

 private:
  std::filesystem::path out_, partial_;
  std::vector<WeightUnit> units_;
  std::vector<ExpertRecords> records_;
  WeightFileWriter weights_, experts_;
  FileLock lock_;
};

}  // namespace onw
