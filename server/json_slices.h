// Parts of a JSON text as they were written: what goes on to a chat template keeps its order and its numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onw::server {

// Of an object: its members in order, the keys decoded as a parser decodes them (so that "\u0061" is "a" here too), the
// values as written. `text` must be valid JSON (parse it first); anything but an object has none.
std::vector<std::pair<std::string, std::string_view>> members(std::string_view text);

// A key that the object has more than once: readers differ on which of its values counts.
std::optional<std::string> repeated_key(std::string_view text);

// Of an array: its elements in order; anything but an array has none.
std::vector<std::string_view> elements(std::string_view text);

// The last member called `key`; empty where there is none.
std::string_view member(std::string_view text, std::string_view key);

}  // namespace onw::server
