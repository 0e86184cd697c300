// Compiled graphs on the disk: a file for each, with a record beside it that says what it is, how it was made, or why
// it could not be. Everything here can be deleted and is made again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_lock.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

// What a compiled graph depends on.
struct BlobInput {
  std::string_view xml;
  const Constants* constants = nullptr;
  std::string weights_digest;                                     // of the files that the text names by offset
  std::string openvino;                                           // the library's build
  std::string device;                                             // OpenVINO's name
  std::vector<std::pair<std::string, std::string>> device_facts;  // names, driver, compiler
  Properties properties;                                          // all of them; platform and tiles are among them
};

// The same for equal graphs, whatever was lowered before them: the constants that lie in no file count by their bytes,
// not by their place. Equal layers are not equal graphs: their weights differ.
std::string blob_key(const BlobInput& input);

// What the device says of itself, its driver and its compiler, as far as it has them.
std::vector<std::pair<std::string, std::string>> blob_facts(const Runtime& runtime, const std::string& device);

// unloadable: it compiled, twice, and the device takes neither blob.
enum class Ended { compiled, refused, crashed, timed_out, out_of_memory, unloadable };
std::string_view name(Ended ended);

// How the first answers of a device with this graph compared with the CPU target's, or with those of other graphs.
struct BlobCheck {
  bool passed = false;
  int rows = 0;
  double mean_kl = 0;
  int same_first = 0;        // rows with the same first choice
  std::string message = {};  // what else is to be said of it
  // For one row, where that was measured later: by the device with all its graphs, and by the CPU target; the same for
  // a row of a prompt.
  double device_seconds = 0, cpu_seconds = 0;
  double device_prompt_seconds = 0, cpu_prompt_seconds = 0;
};

struct BlobRecord {
  std::string key;
  std::string model, segment, device, platform, route, openvino;
  std::string model_folder;  // where the model lay
  int64_t rows = 0;          // -1: any number
  Ended ended = Ended::compiled;
  std::string message;           // the compiler's, where it did not compile; the device's, where it does not load
  double seconds = 0;            // to compile, or until it was given up
  double limit_seconds = 0;      // that it had
  int64_t free_bytes = 0;        // memory that there was
  int64_t peak_bytes = 0;        // that the process had at most, where it ended for want of memory
  int64_t tries = 0;             // that ended for want of memory
  bool without_weights = false;  // then what the plugin keeps is a folder, and loads with the graph's text alone
  int64_t bytes = 0;             // of the blob, or the folder
  std::string digest;            // of the blob
  std::optional<BlobCheck> self_check = {};
  std::filesystem::file_time_type used = {};
};

// What lies in the folder, whoever wrote it.
struct BlobItem {
  enum class Kind {
    whole,    // a record, and the blob that it tells of
    damaged,  // a record or a blob without what belongs to it; it is made anew when it is wanted
    foreign   // nothing of ours
  };
  Kind kind = Kind::whole;
  std::string name;                       // of the file, where there is no record
  std::optional<BlobRecord> record = {};  // its strings are as somebody wrote them: not for a terminal
  std::string trouble = {};               // what is wrong, for people
  int64_t bytes = 0;                      // on the disk
  std::filesystem::file_time_type used = {};
};

// Why nobody will use the blob again: of another build of OpenVINO than `openvino` (empty: any), or of a model whose
// folder is gone. Empty where somebody may.
std::string why_unused(const BlobRecord& record, std::string_view openvino);

// What to do about a store that takes nothing.
std::string_view store_remedy(Code code);

class BlobStore {
 public:
  static constexpr int64_t kDefaultCapBytes = int64_t{64} << 30;
  static constexpr int kUnusedDays = 30;  // after which prune removes what why_unused tells of

  // `folder` is made when something is written. Beyond `cap_bytes` the blobs that were used longest ago go.
  explicit BlobStore(std::filesystem::path folder, int64_t cap_bytes = kDefaultCapBytes);

  const std::filesystem::path& folder() const { return folder_; }

  // What is known of the key. None: nothing, or a record that is damaged or of another version of onw, which is as good
  // as none.
  std::optional<BlobRecord> find(const std::string& key) const;

  // The blob, found to be what was written; its use is noted. Errors: not_found, digest_mismatch, io.
  Result<MappedFile> open(const BlobRecord& record) const;
  // The same of a blob without weights: the folder that its plugin takes it from.
  Result<std::filesystem::path> open_folder(const BlobRecord& record) const;
  // The same of either: whether it is what was written.
  Result<void> verify(const BlobRecord& record) const;

  // Held while the key is compiled; not held where another process has it. Errors: io, no_space.
  Result<FileLock> try_lock(const std::string& key) const;

  // Where a blob is written before it is whole.
  std::filesystem::path partial(const std::string& key) const;
  std::filesystem::path partial_folder(const std::string& key) const;

  // The file at partial() becomes the blob of the record; a record of what did not compile has none. Errors: io,
  // no_space.
  Result<void> add(const BlobRecord& record) const;
  // Kept with the blob. Errors: not_found, io, no_space.
  Result<void> note_self_check(const std::string& key, const BlobCheck& check) const;
  // What compiled and does not load. Errors: not_found, io, no_space.
  Result<void> note_unloadable(const std::string& key, const std::string& why) const;
  void remove(const std::string& key) const;

  // By last use, the latest first; what did not compile among them. Errors: io.
  Result<std::vector<BlobRecord>> entries() const;

  // Everything in the folder but locks: whole blobs by last use, then the rest. Errors: io.
  Result<std::vector<BlobItem>> items() const;

  // Removes what why_unused tells of where nobody used it for 30 days; then blobs, least recently used first, until
  // they take at most `keep_bytes`; and what killed processes left, and what belongs to no record. Returns the bytes
  // that are free again. Errors: io.
  Result<int64_t> prune(int64_t keep_bytes, std::string_view openvino = {}) const;

  // Removes what `goes` says, but nothing that somebody is just writing. Returns the bytes that are free again. Errors:
  // io.
  Result<int64_t> remove_if(const std::function<bool(const BlobItem&)>& goes) const;

  int64_t cap_bytes() const { return cap_bytes_; }

 private:
  std::filesystem::path file(const std::string& key, std::string_view extension) const;
  Result<FileLock> hold(const std::string& key) const;

  std::filesystem::path folder_;
  int64_t cap_bytes_ = 0;
};

}  // namespace onw::openvino
