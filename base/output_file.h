// A file written from front to back in large aligned pieces (the page cache then holds it in huge pages), and what
// makes finished files appear all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

class OutputFile {
 public:
  // Every write but the last begins and ends at a multiple of this, after a first short one where `keep` does not.
  static constexpr int64_t kPieceBytes = 4 << 20;

  // Makes `path`, or keeps the first `keep` bytes of it and goes on behind them. Errors: io, no_space.
  static Result<OutputFile> open(const std::filesystem::path& path, int64_t keep = 0);

  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // without finish() the bytes not yet written are lost

  // Errors: no_space (a full disk, a quota or a size limit), io.
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write_zeros(int64_t bytes);

  int64_t position() const { return written_ + static_cast<int64_t>(pending_.size()); }
  int64_t written() const { return written_; }  // what the system has; the rest waits for a full piece
  Result<void> sync();                          // makes what is written survive a crash of the machine
  Result<void> finish();                        // writes the rest, syncs and closes

 private:
  Result<void> write_pending();

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t written_ = 0;
  std::vector<std::byte> pending_;
};

// The file that a new one takes the place of by a rename: `path`, or what it links to. Errors: invalid_argument for a
// folder, a device or a pipe.
Result<std::filesystem::path> file_to_replace(const std::filesystem::path& path);

// Writes a small file whole: under a temporary name, synced, then renamed over `path`, or over what it links to. A
// device or a pipe is written to as it is.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view text);

// rename, then a sync of the folder, so that the new name survives a crash of the machine. Errors: io.
Result<void> rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// no_space where fewer than `bytes` are free where `folder` lies, else nothing. `what` begins the message.
Result<void> require_free_space(const std::filesystem::path& folder, int64_t bytes, std::string_view what);

// Where a limit of this process on the size of files ends them; the largest number where there is none.
int64_t file_size_limit();

// Nanoseconds since 1970. Errors: not_found, io.
Result<int64_t> modification_time_ns(const std::filesystem::path& path);

// Bytes on disk: less than the size for sparse files.
Result<int64_t> disk_bytes(const std::filesystem::path& path);

}  // namespace onw
