#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/output_file.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

Failure system_error(const fs::path& path, std::string_view what, int e) {
  if (e == ENOSPC || e == EDQUOT)
    return error(Code::no_space, "{}: {}: {}. Free some space or choose another place", path.string(), what,
                 std::strerror(e));
  if (e == EFBIG)
    return error(Code::no_space, "{}: {}: the file may not grow further (ulimit -f, or the file system's limit)",
                 path.string(), what);
  return error(Code::io, "{}: {}: {}", path.string(), what, std::strerror(e));
}

Result<void> sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error(folder, "cannot open", errno);
  ::fsync(fd);  // some file systems refuse this for folders; nothing can be done then
  ::close(fd);
  return {};
}

}  // namespace

Result<OutputFile> OutputFile::open(const fs::path& path, int64_t keep) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (keep == 0 ? O_TRUNC : 0), 0666);
  if (fd < 0) return system_error(path, "cannot write", errno);
  OutputFile file;
  file.path_ = path;
  file.fd_ = fd;
  file.written_ = keep;
  file.pending_.reserve(kPieceBytes);
  if (keep > 0 && (::ftruncate(fd, keep) != 0 || ::lseek(fd, keep, SEEK_SET) != keep))
    return system_error(path, "cannot continue", errno);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(written_, other.written_);
  std::swap(pending_, other.pending_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t room = kPieceBytes - position() % kPieceBytes;
    const auto now = bytes.first(std::min<size_t>(room, bytes.size()));
    pending_.insert(pending_.end(), now.begin(), now.end());
    bytes = bytes.subspan(now.size());
    if (position() % kPieceBytes == 0) RETURN_IF_ERROR(write_pending());
  }
  return {};
}

Result<void> OutputFile::write_zeros(int64_t bytes) {
  static constexpr std::byte kZeros[4096] = {};
  for (; bytes > 0; bytes -= std::min<int64_t>(bytes, sizeof kZeros))
    RETURN_IF_ERROR(write(std::span(kZeros).first(std::min<int64_t>(bytes, sizeof kZeros))));
  return {};
}

Result<void> OutputFile::write_pending() {
  std::span<const std::byte> left = pending_;
  while (!left.empty()) {
    const ssize_t n = ::write(fd_, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path_, fmt::format("cannot write after {} bytes", written_), errno);
    written_ += n;
    left = left.subspan(n);
  }
  pending_.clear();
  return {};
}

Result<void> OutputFile::sync() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) return system_error(path_, "cannot sync", errno);
  return {};
}

Result<void> OutputFile::finish() {
  RETURN_IF_ERROR(write_pending());
  RETURN_IF_ERROR(sync());
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return system_error(path_, "cannot close", errno);
  return {};
}

namespace {

Result<void> write_whole(const fs::path& path, std::string_view text) {
  auto file = OutputFile::open(path);
  RETURN_IF_ERROR(file);
  RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->finish();
}

}  // namespace

Result<fs::path> file_to_replace(const fs::path& path) {
  std::error_code failed;
  const fs::file_status found = fs::status(path, failed);  // of what links lead to
  if (fs::exists(found) && !fs::is_regular_file(found))
    return error(Code::invalid_argument, "{}: {}. Give the name of a file", path.string(),
                 fs::is_directory(found) ? "is a folder" : "is a device or a pipe, which cannot be replaced by a file");
  if (!fs::is_symlink(path, failed)) return path;
  const fs::path target = fs::weakly_canonical(path, failed);
  return failed ? path : target;
}

Result<void> write_file_atomically(const fs::path& path, std::string_view text) {
  std::error_code failed;
  const fs::file_status found = fs::status(path, failed);
  if (fs::exists(found) && !fs::is_regular_file(found) && !fs::is_directory(found)) return write_whole(path, text);
  const auto target = file_to_replace(path);
  RETURN_IF_ERROR(target);
  fs::path temporary = *target;
  temporary += ".partial";
  auto written = write_whole(temporary, text);
  if (!written) {
    fs::remove(temporary, failed);
    return failure(std::move(written));
  }
  return rename_durably(temporary, *target);
}

Result<void> rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return system_error(to, "cannot give this name to the finished file", errno);
  return sync_folder(to.parent_path());
}

Result<void> require_free_space(const fs::path& folder, int64_t bytes, std::string_view what) {
  std::error_code failed;
  const fs::space_info space = fs::space(folder, failed);
  if (failed || static_cast<int64_t>(space.available) >= bytes || static_cast<int64_t>(space.available) < 0) return {};
  return error(Code::no_space, "{} needs {} MB in {}, which has {} MB free. Free some space or choose another place",
               what, (bytes >> 20) + 1, folder.string(), space.available >> 20);
}

int64_t file_size_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur > INT64_MAX) return INT64_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

Result<int64_t> modification_time_ns(const fs::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0)
    return error(errno == ENOENT ? Code::not_found : Code::io, "{}: {}", path.string(), std::strerror(errno));
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

Result<int64_t> disk_bytes(const fs::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0)
    return error(errno == ENOENT ? Code::not_found : Code::io, "{}: {}", path.string(), std::strerror(errno));
  return info.st_blocks * int64_t{512};
}

}  // namespace onw
