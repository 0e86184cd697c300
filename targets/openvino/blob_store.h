// Compiled graphs on the disk: a file for each, with a record beside it that says what it is, how it was made, or why
// it could not be. Everything here can be deleted and is made again.
#pragma once

#include <cstdint>
#include <filesystem>
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

enum class Ended { compiled, refused, crashed, timed_out, out_of_memory };
std::string_view name(Ended ended);

// How the first answer of a compiled graph compared with the CPU target's.
struct SelfCheck {
  bool passed = false;
  double mean_kl = 0;
  double top1 = 0;  // share of rows with the same first choice
  std::string message;
};

struct BlobRecord {
  std::string key;
  std::string model, segment, device, platform, route, openvino;
  int64_t rows = 0;  // -1: any number
  Ended ended = Ended::compiled;
  std::string message;       // the compiler's, where it did not compile
  double seconds = 0;        // to compile, or until it was given up
  double limit_seconds = 0;  // that it had
  int64_t free_bytes = 0;    // memory that there was
  int64_t bytes = 0;         // of the blob
  std::string digest;        // of the blob
  std::optional<SelfCheck> self_check = {};
  std::filesystem::file_time_type used = {};
};

class BlobStore {
 public:
  static constexpr int64_t kDefaultCapBytes = int64_t{64} << 30;

  // `folder` is made when something is written. Beyond `cap_bytes` the blobs that were used longest ago go.
  explicit BlobStore(std::filesystem::path folder, int64_t cap_bytes = kDefaultCapBytes);

  const std::filesystem::path& folder() const { return folder_; }

  // What is known of the key. None: nothing, or a record that is damaged or of another version of onw, which is as good
  // as none.
  std::optional<BlobRecord> find(const std::string& key) const;

  // The blob, found to be what was written; its use is noted. Errors: not_found, digest_mismatch, io.
  Result<MappedFile> open(const BlobRecord& record) const;

  // Held while the key is compiled; not held where another process has it. Errors: io, no_space.
  Result<FileLock> try_lock(const std::string& key) const;

  // Where a blob is written before it is whole.
  std::filesystem::path partial(const std::string& key) const;

  // The file at partial() becomes the blob of the record; a record of what did not compile has none. Errors: io,
  // no_space.
  Result<void> add(const BlobRecord& record) const;
  // Kept with the blob. Errors: not_found, io, no_space.
  Result<void> note_self_check(const std::string& key, const SelfCheck& check) const;
  void remove(const std::string& key) const;

  // By last use, the latest first; what did not compile among them. Errors: io.
  Result<std::vector<BlobRecord>> entries() const;

  // Removes blobs, least recently used first, until they take at most `keep_bytes`; and what killed processes left, and
  // what belongs to no record. Returns the bytes that are free again. Errors: io.
  Result<int64_t> prune(int64_t keep_bytes) const;

  int64_t cap_bytes() const { return cap_bytes_; }

 private:
  std::filesystem::path file(const std::string& key, std::string_view extension) const;

  std::filesystem::path folder_;
  int64_t cap_bytes_ = 0;
};

}  // namespace onw::openvino
