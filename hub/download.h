// One file from an address to its place: resumed, tried again, verified, and only then under its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace onw {

struct Download {
  std::string name;  // in messages
  std::string url;
  std::string token;             // for the first host only
  std::filesystem::path target;  // what has come so far lies in target + ".part"
  int64_t bytes = -1;            // -1: not known
  std::string sha256;            // expected; empty: taken from the hub's X-Linked-Etag where it is sent
  std::string git_sha1;          // expected of git's blob; used where there is no sha256
};

struct Patience {
  int tries = 6;                   // without any progress in between
  double first_wait_seconds = .5;  // doubled each time
  int64_t stall_seconds = 30;
  std::function<void(std::string_view)> retrying = {};  // told before each further try: what failed, why, which try
};

// What `retrying` is told, for the try after `failures` failed ones.
std::string retry_text(const Patience& patience, int failures, double wait_seconds, std::string_view why);

struct Downloaded {
  int64_t bytes = 0;
  std::string sha256;  // of what was received
};

// Bytes of the file that are there; false cancels. Also called while nothing comes.
using DownloadProgress = std::function<bool(int64_t done)>;

// Errors: cancelled and network leave the .part, from which the next call goes on; digest_mismatch (after a second try
// from the beginning; shows both digests), no_space, io, not_found, bad_format (a Git LFS pointer instead of the file).
Result<Downloaded> download(const Download& what, const Patience& patience, const DownloadProgress& progress);

// Whether `path` is there with the size and digest that `what` expects; with neither known it is not.
bool is_complete(const Download& what, const std::filesystem::path& path);

}  // namespace onw
