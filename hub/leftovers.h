// What interrupted pulls, conversions and removals left below $ONW_HOME: it takes room, and does nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

struct Leftover {
  enum class Kind : uint8_t {
    download,    // files of a model, whole or in part; a pull goes on with them
    conversion,  // a conversion goes on with it
    removal,     // of a model that is gone
  };
  std::string name;  // of the model: "org/name", "name", or "HOST/FILE" of a download by its address
  Kind kind = Kind::download;
  std::filesystem::path folder;
  int64_t bytes = 0;
  bool in_use = false;  // an onw is at work on it
};

std::string_view name(Leftover::Kind kind);

// All of them, by name. Nothing where the folder does not exist.
std::vector<Leftover> list_leftovers(const std::filesystem::path& home);

// Removes those of a model, and the files of locks that nobody holds. Returns the bytes that are free again; 0 where
// there was nothing. Errors: invalid_argument (in use), io.
Result<int64_t> remove_leftovers(const std::filesystem::path& home, std::string_view model);

}  // namespace onw
