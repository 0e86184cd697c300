#include "cli/token_ids.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "graph/json.h"

namespace onw::cli {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

Result<std::vector<int32_t>> ids_of_json(std::string_view text, std::string_view where) {
  const auto parsed = parse_json(text, where);
  RETURN_IF_ERROR(parsed);
  std::vector<int32_t> ids;
  for (const auto& item : *parsed) {
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX)
      return error(Code::bad_format, "{}: {} is no token id", where,
                   item.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace

Result<std::vector<int32_t>> parse_token_ids(std::string_view text, std::string_view where) {
  const auto first = text.find_first_not_of(kSpace);
  if (first != std::string_view::npos && text[first] == '[') return ids_of_json(text, where);
  std::vector<int32_t> ids;
  for (size_t at = first; at < text.size(); at = text.find_first_not_of(kSpace, at)) {
    const auto word = text.substr(at, std::min(text.find_first_of(kSpace, at), text.size()) - at);
    int32_t id = -1;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (failure != std::errc() || end != word.data() + word.size() || id < 0)
      return error(Code::bad_format,
                   "{}: '{}' is no token id. Ids are decimal numbers, by white space or as a JSON array", where,
                   word.substr(0, 40));
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

Result<std::vector<int32_t>> read_token_ids(const std::filesystem::path& file) {
  const auto text = read_text(file);
  RETURN_IF_ERROR(text);
  return parse_token_ids(*text, file.string());
}

Result<std::string> read_text(const std::filesystem::path& file) {
  const auto mapped = MappedFile::open(file);
  RETURN_IF_ERROR(mapped);
  const auto bytes = mapped->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace onw::cli
