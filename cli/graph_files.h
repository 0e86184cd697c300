// The graphs that OpenVINO would get, as files that its own tools read.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "cli/flags.h"

namespace onw::cli {

// inspect --ir ROWS: for that many rows, into the folder of --out. The written files' names go to stdout. Errors:
// usage; those of open_model and of write_graphs.
Result<void> write_inspected_graphs(const std::filesystem::path& model, const Args& args);

// convert --graphs-only: for each number of --rows, in a folder of its own in OUT.
Result<void> write_all_graphs(const Args& args);

}  // namespace onw::cli
