// What a person types to name a model on a hub: an id, an address of the hub, or an address of one file anywhere.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace onw {

struct HubSource {
  std::string repository;  // "org/name"; empty for a file elsewhere
  std::string revision;    // branch, tag or commit; empty: not said
  std::string file;        // this file only; empty: what the model needs
  std::string url;         // the file, where `repository` is empty
};

// "org/name", "name", "org/name@revision", "https://HUB/org/name[/tree|blob|resolve/REVISION[/FILE]]", or any other
// http(s) address of a file. `endpoint` is the hub's own address. Errors: invalid_argument.
Result<HubSource> parse_source(std::string_view text, std::string_view endpoint);

// The name of a file inside a repository, checked: relative, with '/', no part "." or "..", nothing that a drive, a
// device or another system's separator could be made of. Errors: bad_format.
Result<void> check_file_name(std::string_view name);

// `text` with everything but letters, digits and "-._~/" as %XX: the path of an address.
std::string encode_path(std::string_view text);

}  // namespace onw
