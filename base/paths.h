// Where a user's files lie.
#pragma once

#include <filesystem>

namespace onw {

// Models and settings: $ONW_HOME, else $XDG_DATA_HOME/onw, else ~/.local/share/onw. Always absolute.
std::filesystem::path home_folder();

// What can be made again, layouts and measured tables: $ONW_CACHE, else $XDG_CACHE_HOME/onw, else ~/.cache/onw.
std::filesystem::path cache_folder();

}  // namespace onw
