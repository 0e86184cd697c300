#include "graph/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"

namespace onw {
namespace {

using nlohmann::json;

// The position of the first bracket that opens level kMaxJsonDepth + 1. Brackets in strings do not count.
std::optional<size_t> too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

// nlohmann tells the place of an error only by an exception or to a SAX handler.
struct ErrorPlace : nlohmann::json_sax<json> {
  JsonFault fault;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    fault.position = at;
    if (dynamic_cast<const json::out_of_range*>(&e) != nullptr) fault.why = "a number is out of range";
    if (std::string_view(e.what()).find("UTF-8") != std::string_view::npos) fault.why = "the text is not UTF-8";
    if (std::string_view(e.what()).find("surrogate") != std::string_view::npos)
      fault.why = "a \\u escape there is half of a character, a surrogate without its other half";
    return false;
  }
};

const json* find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> as_int(const json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double x = value.get<double>();
  if (std::trunc(x) != x || std::fabs(x) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(x);
}

}  // namespace

std::optional<JsonFault> json_fault(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return JsonFault{.why = "it is empty"};
  if (const auto at = too_deep(text)) return JsonFault{*at, true, "it is nested too deep"};
  ErrorPlace place;
  if (json::sax_parse(text.begin(), text.end(), &place)) return std::nullopt;
  place.fault.position = std::min(place.fault.position, text.size());
  return place.fault;
}

Result<json> parse_json(std::string_view text, std::string_view where) {
  if (!too_deep(text)) {
    json value = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (!value.is_discarded()) return value;
  }
  const JsonFault fault = json_fault(text).value_or(JsonFault{});
  if (fault.too_deep)
    return error(Code::bad_format, "{}: JSON nested deeper than {} levels at byte {}. The file is damaged or hostile",
                 where, kMaxJsonDepth, fault.position);
  return error(Code::bad_format, "{}: not valid JSON at byte {} of {}: {}", where, fault.position, text.size(),
               fault.why);
}

Result<json> read_json_file(const std::filesystem::path& path, int64_t max_bytes) {
  const auto file = MappedFile::open(path);
  RETURN_IF_ERROR(file);
  const auto bytes = file->bytes();
  if (static_cast<int64_t>(bytes.size()) > max_bytes)
    return error(Code::bad_format, "{}: {} bytes of JSON, at most {} are read. Is it the right file?", path.string(),
                 bytes.size(), max_bytes);
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::optional<int64_t> find_int(const json& object, std::string_view key) {
  const json* value = find(object, key);
  return value == nullptr ? std::nullopt : as_int(*value);
}

std::optional<double> find_number(const json& object, std::string_view key) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

std::optional<bool> find_bool(const json& object, std::string_view key) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

std::optional<std::string> find_string(const json& object, std::string_view key) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

std::vector<int64_t> find_ints(const json& object, std::string_view key) {
  const json* value = find(object, key);
  std::vector<int64_t> all;
  if (value == nullptr) return all;
  if (const auto one = as_int(*value)) return {*one};
  if (!value->is_array()) return all;
  for (const json& item : *value)
    if (const auto one = as_int(item)) all.push_back(*one);
  return all;
}

const json* find_object(const json& object, std::string_view key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_object() ? value : nullptr;
}

namespace {

template <class T>
Result<std::optional<T>> typed(std::optional<T> value, const json& object, std::string_view key, std::string_view where,
                               std::string_view expected) {
  if (const json* there = find(object, key); !value && there != nullptr)
    return wrong_type(where, key, *there, expected);
  return value;
}

}  // namespace

Result<std::optional<int64_t>> read_int(const json& object, std::string_view key, std::string_view where) {
  return typed(find_int(object, key), object, key, where, "a whole number");
}

Result<std::optional<double>> read_number(const json& object, std::string_view key, std::string_view where) {
  return typed(find_number(object, key), object, key, where, "a number");
}

Result<std::optional<bool>> read_bool(const json& object, std::string_view key, std::string_view where) {
  return typed(find_bool(object, key), object, key, where, "true or false");
}

Result<std::vector<int64_t>> read_ints(const json& object, std::string_view key, std::string_view where) {
  const json* value = find(object, key);
  std::vector<int64_t> all = find_ints(object, key);
  if (value != nullptr && all.size() != (value->is_array() ? value->size() : 1))
    return wrong_type(where, key, *value, "a whole number or a list of them");
  return all;
}

Failure wrong_type(std::string_view where, std::string_view key, const json& found, std::string_view expected) {
  constexpr size_t kShown = 40;
  std::string text = found.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return error(Code::bad_format, "{}: '{}' is {}, expected {}. Download the file again, or correct it", where, key,
               text, expected);
}

std::string dump_json(const json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace onw
