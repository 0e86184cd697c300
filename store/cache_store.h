// Weights in a layout that the model folder does not have: made once, mapped afterwards, shared by all sessions of this
// machine. Everything here can be deleted and is made again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/weight_file.h"
#include "store/weight_file_writer.h"

namespace onw {

struct CacheEntry {
  std::filesystem::path file;
  std::string model;                   // what the caller called it
  std::filesystem::path model_folder;  // where it lay; empty: not known
  int64_t bytes = 0;
  std::filesystem::file_time_type used;
};

struct CacheRequest {
  std::string model;                        // for people: "SmolLM2-135M-Instruct"
  std::filesystem::path model_folder = {};  // of no use without it
  std::string digest;                       // of the weights that the entry is made from
  std::vector<WeightUnit> units;            // what it holds: with the digest, the key

  // Writes the units from writer.next_unit() on.
  std::function<Result<void>(WeightFileWriter& writer)> fill;
};

// Why nobody will use the entry again: its model is gone. Empty where somebody may.
std::string why_unused(const CacheEntry& entry);

class CacheStore {
 public:
  static constexpr int64_t kDefaultCapBytes = int64_t{64} << 30;

  // `folder` is made when something is written. Beyond `cap_bytes` the entries that were used longest ago go.
  explicit CacheStore(std::filesystem::path folder, int64_t cap_bytes = kDefaultCapBytes);

  // The entry, made where it is missing or damaged. Processes that ask for the same one wait for the first; a process
  // that is killed leaves the work to the next, which goes on. Where the disk is full or cannot be written, a warning
  // is logged and the entry lives in memory. Errors: those of `fill`, out_of_memory.
  Result<WeightFile> weights(const CacheRequest& request) const;

  // By last use, the latest first. Errors: io.
  Result<std::vector<CacheEntry>> entries() const;

  // Removes what `goes` says; what a session has mapped stays valid for it. Returns the bytes that are free again.
  // Errors: io.
  Result<int64_t> remove_if(const std::function<bool(const CacheEntry&)>& goes) const;

  // Removes entries, least recently used first, until they take at most `keep_bytes`; what a session has mapped stays
  // valid for it. Returns the bytes that are free again. Errors: io.
  Result<int64_t> prune(int64_t keep_bytes) const;

 private:
  Result<WeightFile> make(const CacheRequest& request, const std::filesystem::path& file) const;
  static void adopt(const CacheRequest& request, const std::filesystem::path& file);

  std::filesystem::path folder_;
  int64_t cap_bytes_ = 0;
};

}  // namespace onw
