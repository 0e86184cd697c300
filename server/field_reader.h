// Fields of a JSON object with their types and ranges; the first mistake is kept, and names its field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/request_fields.h"

namespace onw::server {

class FieldReader {
 public:
  // `object` must outlive the reader. `prefix` stands before the names of its fields ("stream_options.").
  explicit FieldReader(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(FieldName field) const;  // nullptr where absent or null

  // Nothing where the field is absent, or wrong: see error().
  std::optional<bool> boolean(FieldName field);
  std::optional<double> number(FieldName field);
  std::optional<int64_t> integer(FieldName field);
  std::optional<int64_t> integer(FieldName field, int64_t most);  // below the table's limit
  std::optional<std::string> text(FieldName field);

  template <class... Args>
  void fail(FieldName field, fmt::format_string<Args...> format, Args&&... args) {
    fail_with(field.name(), fmt::format(format, std::forward<Args>(args)...));
  }
  void fail_with(std::string_view name, std::string_view message);  // "NAME: message"
  void adopt(const FieldReader& inner);                             // its error, where this has none

  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// "a string", "an object", ...: what the value is, for errors.
std::string_view kind_of(const nlohmann::json& value);

}  // namespace onw::server
