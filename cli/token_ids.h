// Token ids in files: decimal numbers by white space, or a JSON array.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw::cli {

// `where` names the text in errors. Errors: bad_format, with what is no id.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text, std::string_view where);
Result<std::vector<int32_t>> read_token_ids(const std::filesystem::path& file);

// A whole text file. Errors: not_found, io.
Result<std::string> read_text(const std::filesystem::path& file);

}  // namespace onw::cli
