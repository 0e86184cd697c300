#include "hub/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

namespace onw {
namespace {

constexpr size_t kLongestName = 512;
constexpr size_t kLongestPart = 200;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

std::string join(std::span<const std::string_view> parts) {
  std::string joined;
  for (const auto part : parts) joined += (joined.empty() ? "" : "/") + std::string(part);
  return joined;
}

bool is_plain(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.size() <= kLongestPart &&
         std::ranges::all_of(part, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_url(std::string_view text) { return text.starts_with("https://") || text.starts_with("http://"); }

// Names that Windows gives to devices, whatever follows the first dot.
bool is_device(std::string_view part) {
  std::string stem(part.substr(0, part.find('.')));
  std::ranges::transform(stem, stem.begin(), [](unsigned char c) { return std::toupper(c); });
  static constexpr std::array kDevices = {"CON", "PRN", "AUX", "NUL"};
  const bool numbered =
      stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) && std::isdigit(stem[3]) != 0;
  return numbered || std::ranges::find(kDevices, stem) != kDevices.end();
}

// What is wrong with one part of a name, or nothing.
std::string_view fault(std::string_view part) {
  if (part.empty()) return "an empty part";
  if (part == "." || part == "..") return "a part that leads elsewhere";
  if (part.size() > kLongestPart) return "a part of more than 200 bytes";
  if (part.ends_with('.') || part.ends_with(' ')) return "a part that ends in a dot or a space";
  if (is_device(part)) return "the name of a device";
  const bool odd = std::ranges::any_of(part, [](unsigned char c) {
    return c < 0x20 || c == 0x7f || std::string_view("\\:*?\"<>|").find(c) != std::string_view::npos;
  });
  return odd ? "a character that no file name may have everywhere" : "";
}

// The path of a hub's address: org/name[/tree|blob|resolve/REVISION[/FILE]].
Result<HubSource> parse_hub_path(std::string_view path, std::string_view text) {
  path = path.substr(0, path.find_first_of("?#"));
  while (path.ends_with('/')) path.remove_suffix(1);
  const auto parts = split(path, '/');
  HubSource source;
  if (parts.size() < 2 || !is_plain(parts[0]) || !is_plain(parts[1]))
    return error(Code::invalid_argument, "'{}' names no model of the hub. It should look like https://.../org/name",
                 text);
  source.repository = join(std::span(parts).first(2));
  if (parts.size() == 2) return source;
  if (parts.size() == 3 || (parts[2] != "tree" && parts[2] != "blob" && parts[2] != "resolve"))
    return error(Code::invalid_argument,
                 "'{}': after the model's name, tree/REVISION or blob/REVISION/FILE is expected", text);
  source.revision = parts[3];
  source.file = join(std::span(parts).subspan(4));
  if (!source.file.empty()) RETURN_IF_ERROR(check_file_name(source.file));
  return source;
}

}  // namespace

Result<void> check_file_name(std::string_view name) {
  const std::string shown(name.substr(0, name.find('\0')));
  if (name.size() > kLongestName)
    return error(Code::bad_format, "file name of {} bytes in the repository (at most {}): refused", name.size(),
                 kLongestName);
  for (const auto part : split(name, '/'))
    if (const auto what = fault(part); !what.empty())
      return error(Code::bad_format, "file name '{}' in the repository: it has {}. Refused, nothing was downloaded",
                   shown, what);
  return {};
}

std::string encode_path(std::string_view text) {
  std::string encoded;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || std::string_view("-._~/").find(static_cast<char>(c)) != std::string_view::npos)
      encoded += static_cast<char>(c);
    else
      encoded += fmt::format("%{:02X}", c);
  }
  return encoded;
}

Result<HubSource> parse_source(std::string_view text, std::string_view endpoint) {
  if (is_url(text)) {
    for (const auto hub : {endpoint, std::string_view("https://huggingface.co"), std::string_view("https://hf.co")})
      if (text.starts_with(hub) && text.substr(hub.size()).starts_with('/'))
        return parse_hub_path(text.substr(hub.size() + 1), text);
    const auto path = text.substr(0, text.find_first_of("?#"));
    const auto name = path.substr(path.rfind('/') + 1);
    if (path.find('/', 8) == path.npos || name.empty())
      return error(Code::invalid_argument, "'{}' is the address of no file", text);
    RETURN_IF_ERROR(check_file_name(name));
    return HubSource{"", "", std::string(name), std::string(text)};
  }
  const auto at = text.find('@');
  const auto parts = split(text.substr(0, at), '/');
  if (parts.size() > 2 || !std::ranges::all_of(parts, is_plain))
    return error(Code::invalid_argument, "'{}' is neither a model id such as org/name nor an http(s) address", text);
  HubSource source;
  source.repository = text.substr(0, at);
  if (at != text.npos) source.revision = text.substr(at + 1);
  if (at != text.npos && source.revision.empty())
    return error(Code::invalid_argument, "'{}': a branch, tag or commit is expected after '@'", text);
  return source;
}

}  // namespace onw
