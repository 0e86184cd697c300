#include "server/json_slices.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace onw::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Where the string that begins at `at` (a quote) ends: behind its closing quote.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}

// Where the value around `at` ends: at the comma or bracket that belongs to the level above.
size_t value_end(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && depth-- == 0) return at;
    if (c == ',' && depth == 0) return at;
    ++at;
  }
  return text.size();
}

// The pieces between the commas of the outermost brackets.
std::vector<std::string_view> pieces(std::string_view text, char open) {
  std::vector<std::string_view> all;
  text = trimmed(text);
  if (text.empty() || text.front() != open) return all;
  for (size_t at = 1; at < text.size();) {
    const size_t end = value_end(text, at);
    const auto piece = trimmed(text.substr(at, end - at));
    if (!piece.empty()) all.push_back(piece);
    if (end >= text.size() || text[end] != ',') break;
    at = end + 1;
  }
  return all;
}

// The characters of a string that is written with its quotes.
std::string decoded(std::string_view quoted) {
  const auto inner = quoted.substr(1, quoted.size() - 2);
  if (inner.find('\\') == std::string_view::npos) return std::string(inner);
  const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : std::string(inner);
}

}  // namespace

std::vector<std::pair<std::string, std::string_view>> members(std::string_view text) {
  std::vector<std::pair<std::string, std::string_view>> all;
  for (const auto piece : pieces(text, '{')) {
    const size_t key_end = string_end(piece, 0);
    const size_t colon = piece.find(':', key_end);
    if (colon == std::string_view::npos) continue;
    all.emplace_back(decoded(piece.substr(0, key_end)), trimmed(piece.substr(colon + 1)));
  }
  return all;
}

std::optional<std::string> repeated_key(std::string_view text) {
  std::vector<std::string> keys;
  for (auto& [key, value] : members(text)) keys.push_back(std::move(key));
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? std::nullopt : std::optional(*twice);
}

std::vector<std::string_view> elements(std::string_view text) { return pieces(text, '['); }

std::string_view member(std::string_view text, std::string_view key) {
  std::string_view found;
  for (const auto& [name, value] : members(text))
    if (name == key) found = value;
  return found;
}

}  // namespace onw::server
