// JSON from files: bounded, and an error instead of an exception.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_depth.h"
#include "base/result.h"

namespace onw {

// Where a text ceases to be JSON, and why.
struct JsonFault {
  size_t position = 0;
  bool too_deep = false;  // beyond kMaxJsonDepth
  std::string_view why = "something else is expected there";
};

// None where `text` is JSON.
std::optional<JsonFault> json_fault(std::string_view text);

// `where` names the text in errors ("model/config.json"). Errors: bad_format (also for nesting beyond
// kMaxJsonDepth).
Result<nlohmann::json> parse_json(std::string_view text, std::string_view where);

// Errors: not_found, io, bad_format (also for a file beyond `max_bytes`).
Result<nlohmann::json> read_json_file(const std::filesystem::path& path, int64_t max_bytes = 64 << 20);

// The value of `key` where `object` is an object that has it with that type; null counts as absent.
// find_int takes numbers without a fraction (1.0 too); find_ints takes one such number or a list of them.
std::optional<int64_t> find_int(const nlohmann::json& object, std::string_view key);
std::optional<double> find_number(const nlohmann::json& object, std::string_view key);
std::optional<bool> find_bool(const nlohmann::json& object, std::string_view key);
std::optional<std::string> find_string(const nlohmann::json& object, std::string_view key);
std::vector<int64_t> find_ints(const nlohmann::json& object, std::string_view key);
const nlohmann::json* find_object(const nlohmann::json& object, std::string_view key);

// The same for files of strangers: a value of another type is an error (bad_format) that names `where`, the key, what
// is there and what is expected.
Result<std::optional<int64_t>> read_int(const nlohmann::json& object, std::string_view key, std::string_view where);
Result<std::optional<double>> read_number(const nlohmann::json& object, std::string_view key, std::string_view where);
Result<std::optional<bool>> read_bool(const nlohmann::json& object, std::string_view key, std::string_view where);
Result<std::vector<int64_t>> read_ints(const nlohmann::json& object, std::string_view key, std::string_view where);
Failure wrong_type(std::string_view where, std::string_view key, const nlohmann::json& found,
                   std::string_view expected);

// Text for a file. Strings that are not UTF-8 are mended, so this cannot fail.
std::string dump_json(const nlohmann::json& value, int indent = 2);

}  // namespace onw
