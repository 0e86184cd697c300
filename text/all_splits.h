// A text in pieces, for tests of what reads a stream.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onw {

// The text in up to three pieces, cut everywhere, and byte by byte.
inline std::vector<std::vector<std::string>> all_splits(std::string_view text) {
  std::vector<std::vector<std::string>> splits(1);
  for (const char c : text) splits.front().emplace_back(1, c);
  for (size_t a = 0; a <= text.size(); ++a)
    for (size_t b = a; b <= text.size(); ++b)
      splits.push_back(
          {std::string(text.substr(0, a)), std::string(text.substr(a, b - a)), std::string(text.substr(b))});
  return splits;
}

}  // namespace onw
