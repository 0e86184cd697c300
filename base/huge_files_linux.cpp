#include <fmt/format.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/huge_files.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace onw {
namespace {

constexpr size_t kProbeBytes = 16 << 20;
constexpr size_t kPage = 4096;

Result<void> write_probe(const std::filesystem::path& path) {
  auto file = OutputFile::open(path);
  RETURN_IF_ERROR(file);
  const std::vector<std::byte> bytes(kProbeBytes, std::byte{1});
  RETURN_IF_ERROR(file->write(bytes));
  return file->finish();
}

std::optional<double> mapped_share(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  file->advise_huge_pages();
  volatile int sum = 0;
  for (size_t at = 0; at < file->bytes().size(); at += kPage) sum = sum + static_cast<int>(file->bytes()[at]);
  const auto huge = huge_page_bytes(file->bytes());
  return huge ? std::optional(static_cast<double>(huge->file) / kProbeBytes) : std::nullopt;
}

}  // namespace

std::optional<HugePageBytes> huge_page_bytes(std::span<const std::byte> memory) {
  std::ifstream maps("/proc/self/smaps");  // a line "begin-end ...", then lines "Key:  N kB"
  const auto wanted = reinterpret_cast<uintptr_t>(memory.data());
  std::string line;
  std::optional<HugePageBytes> found;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0, end = 0;
    int64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      if (found) break;
      if (begin <= wanted && wanted < end) found.emplace();
    } else if (found && std::sscanf(line.c_str(), "FilePmdMapped: %" SCNd64, &kilobytes) == 1) {
      found->file = kilobytes * 1024;
    } else if (found && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64, &kilobytes) == 1) {
      found->anonymous = kilobytes * 1024;
    }
  }
  return found;
}

std::optional<double> huge_share_of_files(const std::filesystem::path& folder) {
  const auto path = folder / fmt::format(".onw-huge-pages-{}", ::getpid());
  const auto written = write_probe(path);
  const auto share = written ? mapped_share(path) : std::nullopt;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return share;
}

}  // namespace onw
