// Where OpenVINO's C library lies on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw::openvino {

inline constexpr std::string_view kOldestVersion = "2025.0";
inline constexpr std::string_view kHowToGet =
    "Install it with: pip install openvino (any Python; onw needs the files only), or set ONW_OPENVINO_DIR to its "
    "folder";

struct SearchPlaces {
  std::string given;                           // ONW_OPENVINO_DIR: then nothing else is looked at
  std::vector<std::filesystem::path> pythons;  // folders that hold lib/python3*/site-packages
  std::vector<std::filesystem::path> folders;  // of installed packages
};

// Of this process: the active virtual environment, the Pythons of PATH, the user's, the system's; then /opt/intel and
// the system's libraries.
SearchPlaces search_places();

// The first place that has the library, the newest of several there. Errors: not_found, with where it was looked for
// and how to get it.
Result<std::filesystem::path> find_library(const SearchPlaces& places);

}  // namespace onw::openvino
