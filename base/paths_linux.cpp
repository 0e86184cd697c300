#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/paths.h"

namespace onw {
namespace {

std::filesystem::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::filesystem::path user_folder() {
  if (const auto home = variable("HOME"); !home.empty()) return home;
  const passwd* entry = getpwuid(getuid());
  return entry == nullptr || entry->pw_dir == nullptr ? "/" : entry->pw_dir;
}

// The XDG rule: a relative value counts as not set.
std::filesystem::path folder(const char* own, const char* xdg, const char* otherwise) {
  if (const auto chosen = variable(own); !chosen.empty()) return std::filesystem::absolute(chosen).lexically_normal();
  if (const auto base = variable(xdg); base.is_absolute()) return base / "onw";
  return user_folder() / otherwise / "onw";
}

}  // namespace

std::filesystem::path home_folder() { return folder("ONW_HOME", "XDG_DATA_HOME", ".local/share"); }
std::filesystem::path cache_folder() { return folder("ONW_CACHE", "XDG_CACHE_HOME", ".cache"); }

}  // namespace onw
