// Fields of a JSON object with their types and ranges; the first mistake is kept, and names its field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace onw::server {

class FieldReader {
 public:
  // `object` must outlive the reader. `prefix` is put before field names in errors ("stream_options.").
  explicit FieldReader(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(std::string_view name) const;  // nullptr where absent or null

  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double min, double max);
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  std::optional<std::string> text(std::string_view name);

  template <class... Args>
  void fail(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
    fail_with(name, fmt::format(format, std::forward<Args>(args)...));
  }
  void fail_with(std::string_view name, std::string message);  // "NAME: message"
  void adopt(const FieldReader& inner);                        // its error, where this has none

  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// "a string", "an object", ...: what the value is, for errors.
std::string_view kind_of(const nlohmann::json& value);

}  // namespace onw::server
