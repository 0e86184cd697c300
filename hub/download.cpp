#include "hub/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/lfs_pointer.h"
#include "hub/http.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = 1 << 20;
constexpr double kLongestWaitSeconds = 60;
constexpr int64_t kLfsPointerBytes = 1024;

int64_t size_of(const fs::path& path) {
  std::error_code none;
  const auto size = fs::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(size);
}

// Both digests of what has come so far.
class Digests {
 public:
  explicit Digests(int64_t bytes) : git_(Digest::Kind::sha1), knows_size_(bytes >= 0) {
    git_.add(fmt::format("blob {}", bytes));
    git_.add(std::string_view("\0", 1));
  }
  void add(std::string_view piece) {
    sha256_.add(piece);
    if (knows_size_) git_.add(piece);
  }
  std::string sha256() { return sha256_.hex(); }
  std::string git_sha1() { return git_.hex(); }

 private:
  Digest sha256_;
  Digest git_;
  bool knows_size_;
};

// Feeds the file at `path`. False where it cannot be read to its end, or `go_on` says so.
template <class GoOn>
bool add_file(Digests& digests, const fs::path& path, const GoOn& go_on) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(kReadBytes);
  int64_t done = 0;
  while (in && go_on(done)) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    digests.add({block.data(), static_cast<size_t>(in.gcount())});
    done += in.gcount();
  }
  return in.eof();
}

// The SHA-256 that the hub announces for a file outside git, or nothing.
std::string linked_digest(const HttpResponse& response) {
  const auto found = response.first_headers.find("x-linked-etag");
  if (found == response.first_headers.end()) return "";
  std::string digest = found->second;
  std::erase(digest, '"');
  const bool hex = digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == digest.npos;
  return hex ? digest : "";
}

// Whether a partial answer begins at the byte that was asked for.
bool is_from(const HttpResponse& response, int64_t byte) {
  const auto range = response.headers.find("content-range");
  return range != response.headers.end() && range->second.starts_with(fmt::format("bytes {}-", byte));
}

// One file on its way: the .part, its digests, and how often was tried.
class Transfer {
 public:
  Transfer(const Download& what, const Patience& patience, const DownloadProgress& progress)
      : what_(what), patience_(patience), progress_(progress), part_(what.target) {
    part_ += ".part";
    expected_sha256_ = what.sha256;
  }

  Result<Downloaded> run();

 private:
  Result<bool> attempt();  // true: the body is complete
  Result<bool> receive();
  Result<bool> judge(const HttpResponse& response);
  Result<std::optional<Downloaded>> verify();
  Result<bool> try_again(Error error, double wait_seconds);
  Result<void> place();
  bool accept(const HttpResponse& response, std::string_view piece);
  bool start_over();
  bool wait(double seconds) const;
  bool report() const { return !progress_ || progress_(done_); }

  const Download& what_;
  const Patience& patience_;
  const DownloadProgress& progress_;
  fs::path part_;
  std::ofstream out_;
  std::optional<Digests> digests_;
  std::string expected_sha256_;
  int64_t done_ = 0;
  int failures_ = 0;         // since something came
  bool mismatched_ = false;  // once before
  bool disk_failed_ = false;
  bool wrong_range_ = false;
};

bool Transfer::start_over() {
  done_ = 0;
  digests_.emplace(what_.bytes);
  out_.close();
  out_.clear();
  std::error_code ignored;
  fs::remove(part_, ignored);  // never write through a link
  out_.open(part_, std::ios::binary | std::ios::trunc);
  return out_.is_open();
}

// Called with each piece of a response.
bool Transfer::accept(const HttpResponse& response, std::string_view piece) {
  if (response.status >= 400) return true;  // the text of an error page
  if (response.status == 206 && !out_.is_open() && !is_from(response, done_)) {
    wrong_range_ = true;
    return false;
  }
  if (response.status != 206 && done_ > 0 && !out_.is_open()) disk_failed_ = !start_over();
  if (!out_.is_open() && !disk_failed_) {
    out_.clear();
    out_.open(part_, std::ios::binary | std::ios::app);
  }
  out_.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  disk_failed_ = disk_failed_ || !out_;
  if (disk_failed_) return false;
  digests_->add(piece);
  done_ += static_cast<int64_t>(piece.size());
  failures_ = 0;
  return report();
}

Result<bool> Transfer::try_again(Error error, double wait_seconds) {
  if (++failures_ >= patience_.tries) {
    error.message +=
        fmt::format(". {} tries; what has come so far is kept, so the same command goes on from there", failures_);
    return Failure(std::move(error));
  }
  if (patience_.retrying) patience_.retrying(retry_text(patience_, failures_, wait_seconds, error.message));
  if (!wait(wait_seconds)) return onw::error(Code::cancelled, "{}: cancelled", what_.name);
  return false;
}

bool Transfer::wait(double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (!report()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// One request for what is missing.
Result<bool> Transfer::receive() {
  HttpRequest request{what_.url, what_.token, done_, patience_.stall_seconds};
  const double pause =
      std::min(patience_.first_wait_seconds * static_cast<double>(1 << std::min(failures_, 10)), kLongestWaitSeconds);
  const auto response = http_get(
      request, [this](const HttpResponse& r, std::string_view piece) { return accept(r, piece); },
      [this] { return report(); });
  if (out_.is_open()) out_.close();
  disk_failed_ = disk_failed_ || out_.fail();
  if (disk_failed_)
    return error(Code::no_space, "{}: cannot write {}. Is the disk full? What has come so far is kept", what_.name,
                 part_.string());
  if (std::exchange(wrong_range_, false)) {
    start_over();
    return try_again({Code::network, fmt::format("{}: the server sends another range than was asked for", what_.name)},
                     0);
  }
  if (!response) {
    Error failed{response.error().error.code, fmt::format("{}: {}", what_.name, response.error().error.message)};
    if (response.error().may_pass) return try_again(std::move(failed), pause);
    return Failure(std::move(failed));
  }
  return judge(*response);
}

// What a whole response means.
Result<bool> Transfer::judge(const HttpResponse& response) {
  const double pause = patience_.first_wait_seconds * static_cast<double>(1 << std::min(failures_, 10));
  if (response.status == 416) {  // the .part is longer than the file, or belongs to another
    start_over();
    return try_again({Code::network, fmt::format("{}: the server has no such range", what_.name)}, 0);
  }
  if (response.status >= 400) {
    auto failure = http_status_error(response, what_.name, !what_.token.empty());
    if (!status_may_pass(response.status)) return Failure(std::move(failure));
    const auto later = response.headers.find("retry-after");
    const double asked = later == response.headers.end() ? 0 : std::atof(later->second.c_str());
    return try_again(std::move(failure), std::clamp(asked, pause, std::max(pause, kLongestWaitSeconds)));
  }
  if (expected_sha256_.empty()) expected_sha256_ = linked_digest(response);
  if (what_.bytes >= 0 && done_ < what_.bytes)
    return try_again({Code::network, fmt::format("{}: {} of {} bytes came", what_.name, done_, what_.bytes)}, pause);
  return true;
}

// Nothing, where the content is not what was expected and another try from the beginning is due.
Result<std::optional<Downloaded>> Transfer::verify() {
  const auto sha256 = digests_->sha256();
  std::string expected = expected_sha256_, found = sha256;
  if (expected.empty() && !what_.git_sha1.empty() && what_.bytes >= 0) {
    expected = what_.git_sha1;
    found = digests_->git_sha1();
  }
  const bool right_size = what_.bytes < 0 || done_ == what_.bytes;
  if (right_size && (expected.empty() || expected == found)) return std::optional(Downloaded{done_, sha256});
  std::error_code ignored;
  fs::remove(part_, ignored);
  if (std::exchange(mismatched_, true)) {
    if (!right_size)
      return error(Code::digest_mismatch, "{}: {} bytes came, {} were expected", what_.name, done_, what_.bytes);
    return error(
        Code::digest_mismatch,
        "{}: what came, twice, is not what the hub announced: digest {} instead of {}. It was deleted. A proxy or a "
        "mirror may alter it; try again later, or without them",
        what_.name, found, expected);
  }
  if (patience_.retrying)
    patience_.retrying(
        fmt::format("{}: what came is not what the hub announced. Once more from its beginning", what_.name));
  return std::optional<Downloaded>();
}

Result<bool> Transfer::attempt() {
  std::error_code ignored;
  if (fs::is_symlink(part_, ignored) || (what_.bytes >= 0 && size_of(part_) > what_.bytes)) fs::remove(part_, ignored);
  done_ = size_of(part_);
  digests_.emplace(what_.bytes);
  if (done_ > 0 && !add_file(*digests_, part_, [this](int64_t) { return report(); })) {
    if (!report()) return error(Code::cancelled, "{}: cancelled", what_.name);
    if (!start_over()) return error(Code::io, "{}: cannot write {}", what_.name, part_.string());
  }
  if (what_.bytes > 0 && done_ == what_.bytes) return true;
  return receive();
}

Result<void> Transfer::place() {
  std::error_code failed;
  if (!fs::exists(part_)) std::ofstream(part_, std::ios::binary);  // an empty file
  if (done_ <= kLfsPointerBytes) {
    std::ifstream in(part_, std::ios::binary);
    std::string start(static_cast<size_t>(done_), '\0');
    in.read(start.data(), static_cast<std::streamsize>(start.size()));
    if (is_lfs_pointer(std::as_bytes(std::span(start))))
      return error(
          Code::bad_format,
          "{}: the server sent a Git LFS pointer instead of the file. Take the address with /resolve/ in it, not /raw/",
          what_.name);
  }
  fs::rename(part_, what_.target, failed);
  if (failed)
    return error(Code::io, "{}: cannot rename to {}: {}", what_.name, what_.target.string(), failed.message());
  return {};
}

Result<Downloaded> Transfer::run() {
  for (;;) {
    auto complete = attempt();
    RETURN_IF_ERROR(complete);
    if (!*complete) continue;
    auto verified = verify();
    RETURN_IF_ERROR(verified);
    if (!*verified) continue;
    RETURN_IF_ERROR(place());
    return **verified;
  }
}

}  // namespace

std::string retry_text(const Patience& patience, int failures, double wait_seconds, std::string_view why) {
  return fmt::format("{}. Try {} of {}{}", why, failures + 1, patience.tries,
                     wait_seconds > 0 ? fmt::format(" in {:.1f} s", wait_seconds) : "");
}

Result<Downloaded> download(const Download& what, const Patience& patience, const DownloadProgress& progress) {
  std::error_code failed;
  fs::create_directories(what.target.parent_path(), failed);
  if (failed)
    return error(Code::io, "{}: cannot make {}: {}", what.name, what.target.parent_path().string(), failed.message());
  return Transfer(what, patience, progress).run();
}

bool is_complete(const Download& what, const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::is_symlink(path, ignored)) return false;
  if (what.bytes >= 0 && size_of(path) != what.bytes) return false;
  if (what.sha256.empty() && (what.git_sha1.empty() || what.bytes < 0)) return false;
  Digests digests(what.bytes);
  if (!add_file(digests, path, [](int64_t) { return true; })) return false;
  return what.sha256.empty() ? digests.git_sha1() == what.git_sha1 : digests.sha256() == what.sha256;
}

}  // namespace onw
