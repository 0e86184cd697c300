// Parts of a JSON text as they were written: what goes on to a chat template keeps its order and its numbers.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace onw::server {

// Of an object: its members in order, the keys still escaped, without quotes. `text` must be valid JSON (parse it
// first); anything but an object has none.
std::vector<std::pair<std::string_view, std::string_view>> members(std::string_view text);

// Of an array: its elements in order; anything but an array has none.
std::vector<std::string_view> elements(std::string_view text);

// The last member called `key`; empty where there is none. Only for keys that need no escape.
std::string_view member(std::string_view text, std::string_view key);

}  // namespace onw::server
