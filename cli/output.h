// Data on stdout: a full disk or a closed pipe is an error like any other. Words for people on stderr.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace onw::cli {

// Errors: io.
Result<void> write_output(std::string_view bytes);
Result<void> flush_output();

template <class... Args>
Result<void> print(fmt::format_string<Args...> format, Args&&... args) {
  return write_output(fmt::format(format, std::forward<Args>(args)...));
}

// On stderr. Where nobody can be told, nobody is.
void tell_text(std::string_view text);

template <class... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  tell_text(fmt::format(format, std::forward<Args>(args)...));
}

inline constexpr size_t kMaxInputBytes = size_t{256} << 20;

// All of stdin. Errors: io, invalid_argument (more than `limit_bytes`).
Result<std::string> read_input(size_t limit_bytes);

// Text from files and models for people: control characters, which a terminal obeys, are spelled out (\\x1b); line ends
// and tabs stay. What is beyond `most` bytes is left out.
std::string printable(std::string_view text, size_t most = std::string_view::npos);

// Rows of printable cells in aligned columns, two spaces apart; columns whose cells all look like numbers are
// right-aligned. The first row is the heading.
std::string table(const std::vector<std::vector<std::string>>& rows_of_text);

// "1.4 GB" in powers of ten, as memory and disks are sold.
std::string bytes_text(int64_t bytes);

}  // namespace onw::cli
