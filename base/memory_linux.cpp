#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include "base/memory.h"

namespace onw {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number after `key` in a file of "key value" lines, or the file's only number where `key` is empty.
int64_t number_in(const std::string& path, std::string_view key, int64_t otherwise) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!std::string_view(line).starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    int64_t value = 0;
    return rest >> value ? value : otherwise;  // "max" is no number
  }
  return otherwise;
}

// What a control group leaves: its limit, less what it holds, where file pages that can go at once do not count.
int64_t left_in_group(const std::string& folder, const char* limit_name, const char* used_name, const char* file_key) {
  const int64_t limit = number_in(folder + limit_name, "", kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  const int64_t used = number_in(folder + used_name, "", 0);
  const int64_t droppable = number_in(folder + "/memory.stat", file_key, 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - droppable));
}

// The group's folder and every one above it: each may have a limit.
int64_t left_in_hierarchy(const std::string& root, std::string group, bool v2) {
  int64_t left = kUnlimited;
  for (;;) {
    const std::string folder = group == "/" ? root : root + group;
    left = std::min(
        left, v2 ? left_in_group(folder, "/memory.max", "/memory.current", "inactive_file ")
                 : left_in_group(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "));
    if (group.size() <= 1) return left;
    const size_t slash = group.rfind('/');
    group = slash == 0 || slash == std::string::npos ? "/" : group.substr(0, slash);
  }
}

}  // namespace

int64_t available_memory_bytes() {
  int64_t available = number_in("/proc/meminfo", "MemAvailable:", kUnlimited / 1024) * 1024;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {  // "id:controllers:path"; v2 has no controllers
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) available = std::min(available, left_in_hierarchy("/sys/fs/cgroup", group, true));
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      available = std::min(available, left_in_hierarchy("/sys/fs/cgroup/memory", group, false));
  }
  return available;
}

int64_t total_memory_bytes() { return number_in("/proc/meminfo", "MemTotal:", 0) * 1024; }

int64_t peak_memory_bytes() { return number_in("/proc/self/status", "VmHWM:", 0) * 1024; }

int64_t resident_memory_bytes() { return number_in("/proc/self/status", "VmRSS:", 0) * 1024; }

std::string huge_page_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  std::string text;
  std::getline(file, text);
  const auto open = text.find('[');
  const auto close = text.find(']');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "";
}

HugePageUse huge_page_use() {
  const auto bytes = [](std::string_view key) {
    const int64_t kilobytes = number_in("/proc/meminfo", key, -1);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
  };
  return {bytes("AnonHugePages:"), bytes("FileHugePages:"), bytes("FilePmdMapped:")};
}

void give_back_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace onw
