#include "cli/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace onw::cli {
namespace {

bool looks_like_number(std::string_view cell) {
  return cell.empty() || cell == "-" || (cell.front() >= '0' && cell.front() <= '9');
}

// Characters, not bytes: what a terminal shows for text without wide or combining letters.
size_t shown_width(std::string_view cell) {
  return static_cast<size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Line ends and tabs would break the columns.
std::string one_line(const std::string& cell) {
  std::string out;
  for (const char c : cell) {
    if (c == '\n' || c == '\t')
      out += c == '\n' ? "\\n" : "\\t";
    else
      out += c;
  }
  return out;
}

}  // namespace

Result<void> write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size())
    return error(Code::io, "cannot write to stdout: {}", std::strerror(errno));
  return {};
}

void tell_text(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

Result<void> flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return error(Code::io, "cannot write to stdout: {}", std::strerror(errno));
  return {};
}

Result<std::string> read_input(size_t limit_bytes) {
  std::string text;
  std::array<char, 65536> block{};
  while (const size_t n = std::fread(block.data(), 1, block.size(), stdin)) {
    text.append(block.data(), n);
    if (text.size() > limit_bytes)
      return error(Code::invalid_argument, "stdin holds more than {} bytes, the limit", limit_bytes);
  }
  if (std::ferror(stdin) != 0) return error(Code::io, "cannot read stdin: {}", std::strerror(errno));
  return text;
}

std::string printable(std::string_view text, size_t most) {
  std::string out;
  const std::string_view shown = text.substr(0, most);
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto c = static_cast<unsigned char>(shown[i]);
    const auto next = i + 1 < shown.size() ? static_cast<unsigned char>(shown[i + 1]) : 0U;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0)  // U+0080 to U+009F: control characters as well
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(shown[++i]));
    else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += shown[i];
  }
  if (shown.size() < text.size()) out += "...";
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows_of_text) {
  auto rows = rows_of_text;
  for (auto& row : rows)
    for (auto& cell : row) cell = one_line(printable(cell));
  std::vector<size_t> width;
  std::vector<bool> numeric;
  for (size_t r = 0; r < rows.size(); ++r) {
    width.resize(std::max(width.size(), rows[r].size()));
    numeric.resize(width.size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      width[c] = std::max(width[c], shown_width(rows[r][c]));
      if (r > 0 && !looks_like_number(rows[r][c])) numeric[c] = false;
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - shown_width(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (numeric[c] ? padding + row[c] : row[c] + padding);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double x = static_cast<double>(bytes);
  size_t unit = 0;
  while (x >= 999.5 && unit + 1 < kUnits.size()) {
    x /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", x, x < 9.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace onw::cli
