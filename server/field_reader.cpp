#include "server/field_reader.h"

#include <cmath>
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

const json* FieldReader::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::fail_with(std::string_view name, std::string message) {
  if (error_) return;
  const auto field = prefix_ + std::string(name);
  error_ = ApiError{.status = 400, .message = fmt::format("{}: {}", field, message), .param = field};
}

void FieldReader::adopt(const FieldReader& inner) {
  if (!error_) error_ = inner.error_;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false, is {}", kind_of(*value));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, double min, double max) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(name, "must be a number, is {}", kind_of(*value));
    return std::nullopt;
  }
  const auto x = value->get<double>();
  if (x >= min && x <= max) return x;
  fail(name, "is {}, must be from {} to {}", x, min, max);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t min, int64_t max) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(name, "must be a whole number, is {}", kind_of(*value));
    return std::nullopt;
  }
  const auto x = value->get<double>();
  if (x != std::floor(x)) {
    fail(name, "must be a whole number, is {}", x);
    return std::nullopt;
  }
  const bool exact =
      value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  if (x < static_cast<double>(min) || x > static_cast<double>(max)) {
    if (x < static_cast<double>(min))
      fail(name, "is {}, must be at least {}", x, min);
    else
      fail(name, "is {}, must be at most {}", x, max);
    return std::nullopt;
  }
  return exact ? value->get<int64_t>() : static_cast<int64_t>(std::min(x, 9.2e18));
}

std::optional<std::string> FieldReader::text(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string, is {}", kind_of(*value));
  return std::nullopt;
}

}  // namespace onw::server
