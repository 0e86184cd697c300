// From the hub into the store: for `onw pull`, and for commands that find that their model is not there.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "convert/convert.h"

namespace onw::cli {

struct PullWish {
  std::string source;    // as typed
  std::string revision;  // empty: main
  std::string file;      // of several models in a repository; empty: the one that there is
  bool keep = false;     // the published files
  ConvertOptions convert;
};

// The model's folder, with progress on stderr. One that is there is left as it is, unless convert.replace. Errors:
// those of pull and convert.
Result<std::filesystem::path> pull_model(PullWish wish);

// As locate_model. Where a model with a name of the hub (owner/name) is not there, a person at a terminal is asked
// whether to pull it; nobody else is, and no connection is made without a yes.
Result<std::filesystem::path> locate_or_pull(const std::string& model);

}  // namespace onw::cli
