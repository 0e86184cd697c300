#include <spawn.h>
#include <unistd.h>

#include <array>

#include "base/browser.h"

extern char** environ;

namespace onw {

bool open_in_browser(const std::string& url) {
  std::string program = "xdg-open";
  std::string argument = url;
  const std::array<char*, 3> words = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  return ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words.data(), environ) == 0;
}

}  // namespace onw
