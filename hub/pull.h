// A model from the hub, or one file from any address, into a folder: as published, verified, with a note of where it
// came from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/download.h"
#include "hub/source.h"

namespace onw {

// Where to pull from. `from_environment`: HF_ENDPOINT and HF_TOKEN. (Proxies and SSL_CERT_FILE are read by the
// transfer.)
struct Hub {
  std::string endpoint = "https://huggingface.co";
  std::string token;
  Patience patience;
  bool endpoint_is_set = false;  // by HF_ENDPOINT: errors of the network say so

  static Hub from_environment();
};

struct PullRequest {
  std::string source;          // see parse_source
  std::string revision;        // branch, tag or commit; empty: that of `source`, else main
  std::string file;            // this file only
  std::filesystem::path into;  // made where missing
};

struct PullProgress {
  std::string_view file;
  int64_t done = 0;   // bytes of all files; those that were there already count
  int64_t total = 0;  // 0: not known
};

struct PulledFile {
  std::string name;
  int64_t bytes = 0;
  std::string sha256;
};

struct Pulled {
  std::filesystem::path folder;
  std::string source;    // "org/name" or the address
  std::string revision;  // the commit; empty for an address elsewhere
  std::string licence;   // as the publisher names it; may be empty
  std::vector<PulledFile> files;
  int64_t downloaded_bytes = 0;  // by this call
};

// What stands in a pulled folder beside the files, written last: without it the folder is not complete.
inline constexpr std::string_view kPulledNote = "pulled.json";

// Files that are there and right are not downloaded again. `progress` returning false cancels; the same call goes on
// later. Errors: invalid_argument, not_found, network, no_space, digest_mismatch, bad_format, unsupported, io,
// cancelled.
Result<Pulled> pull(const PullRequest& request, const Hub& hub,
                    const std::function<bool(const PullProgress&)>& progress);

// The note of a folder that was pulled whole, without any connection. Errors: not_found, bad_format.
Result<Pulled> read_pulled(const std::filesystem::path& folder);

// The usual place of a source below the home folder: downloads/org--name, or downloads/HOST--FILE.
std::filesystem::path download_folder(const std::filesystem::path& home, const HubSource& source);

}  // namespace onw
