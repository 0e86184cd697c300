#include "server/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace onw::server {

using nlohmann::json;

std::string_view kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return "true or false";
    case json::value_t::string:
      return "a string";
    case json::value_t::array:
      return "an array";
    case json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

const json* FieldReader::find(FieldName field) const {
  CHECK(field.name().starts_with(prefix_));
  const auto found = object_.find(field.name().substr(prefix_.size()));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::fail_with(std::string_view name, std::string_view message) {
  if (error_) return;
  error_ = ApiError{.status = 400, .message = fmt::format("{}: {}", name, message), .param = std::string(name)};
}

void FieldReader::adopt(const FieldReader& inner) {
  if (!error_) error_ = inner.error_;
}

std::optional<bool> FieldReader::boolean(FieldName field) {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(field, "must be true or false, is {}", kind_of(*value));
  return std::nullopt;
}

std::optional<double> FieldReader::number(FieldName field) {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(field, "must be a number, is {}", kind_of(*value));
    return std::nullopt;
  }
  const auto x = value->get<double>();
  if (field.row().range.contains(x)) return x;
  fail(field, "is {}, must be {}", x, range_text(field.row().range));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(FieldName field) {
  return integer(field, std::numeric_limits<int64_t>::max());
}

std::optional<int64_t> FieldReader::integer(FieldName field, int64_t most) {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(field, "must be a whole number, is {}", kind_of(*value));
    return std::nullopt;
  }
  const auto x = value->get<double>();
  if (x != std::floor(x)) {
    fail(field, "must be a whole number, is {}", x);
    return std::nullopt;
  }
  Range range = field.row().range;
  range.max = std::min(range.max, static_cast<double>(most));
  if (!range.contains(x)) {
    fail(field, "is {}, must be {}", x, range_text(range));
    return std::nullopt;
  }
  const bool exact =
      value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  return exact ? value->get<int64_t>() : static_cast<int64_t>(std::min(x, 9.2e18));
}

std::optional<std::string> FieldReader::text(FieldName field) {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(field, "must be a string, is {}", kind_of(*value));
  return std::nullopt;
}

}  // namespace onw::server
