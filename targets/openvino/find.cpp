#include "targets/openvino/find.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace onw::openvino {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Entries of a folder whose name begins so, newest version last. Never throws: places that cannot be read hold nothing.
std::vector<fs::path> entries(const fs::path& folder, std::string_view beginning) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (auto it = fs::directory_iterator(folder, failure); !failure && it != fs::directory_iterator();
       it.increment(failure))
    if (it->path().filename().string().starts_with(beginning)) found.push_back(it->path());
  std::ranges::sort(found);
  return found;
}

// libopenvino_c.so.2641 of a release, libopenvino_c.so of an installed package.
std::optional<fs::path> library_in(const fs::path& folder) {
  const auto found = entries(folder, "libopenvino_c.so");
  if (found.empty()) return std::nullopt;
  return found.back();
}

// The folder itself, a wheel's, an unpacked archive's.
std::optional<fs::path> library_of(const fs::path& folder) {
  for (const char* below : {"", "libs", "openvino/libs", "runtime/lib/intel64", "lib/intel64", "lib"})
    if (auto found = library_in(folder / below)) return found;
  return std::nullopt;
}

std::optional<fs::path> library_of_python(const fs::path& prefix) {
  for (const char* lib : {"lib", "local/lib", "lib64"}) {
    auto pythons = entries(prefix / lib, "python3");
    std::ranges::reverse(pythons);
    for (const fs::path& python : pythons)
      for (const char* packages : {"site-packages", "dist-packages"})
        if (auto found = library_in(python / packages / "openvino/libs")) return found;
  }
  return std::nullopt;
}

}  // namespace

SearchPlaces search_places() {
  SearchPlaces places{.given = variable("ONW_OPENVINO_DIR")};
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = variable(name); !prefix.empty()) places.pythons.emplace_back(prefix);
  const std::string path = variable("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path bin = path.substr(begin, end - begin);
    std::error_code failure;
    if (fs::exists(bin / "python3", failure)) places.pythons.push_back(bin.parent_path());
    begin = end + 1;
  }
  if (const std::string home = variable("HOME"); !home.empty()) places.pythons.push_back(fs::path(home) / ".local");
  for (const char* prefix : {"/usr/local", "/usr"}) places.pythons.emplace_back(prefix);
  auto intel = entries("/opt/intel", "openvino");
  std::ranges::reverse(intel);
  places.folders = std::move(intel);
  for (const char* folder : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"})
    places.folders.emplace_back(folder);
  return places;
}

Result<fs::path> find_library(const SearchPlaces& places) {
  if (!places.given.empty()) {
    if (const auto found = library_of(places.given)) return *found;
    return error(Code::not_found,
                 "ONW_OPENVINO_DIR is {}, where there is no libopenvino_c.so: name the folder that holds it, or unset "
                 "it and install OpenVINO with: pip install openvino",
                 places.given);
  }
  for (const fs::path& prefix : places.pythons)
    if (const auto found = library_of_python(prefix)) return *found;
  for (const fs::path& folder : places.folders)
    if (const auto found = library_of(folder)) return *found;
  return error(Code::not_found, "OpenVINO is not on this machine. {}", kHowToGet);
}

}  // namespace onw::openvino
