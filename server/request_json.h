// The body of a request as JSON, with errors for who sent it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "server/api_error.h"

namespace onw::server {

// Errors (400): empty, not JSON (says at which byte), nested deeper than kMaxJsonDepth.
ApiResult<nlohmann::json> parse_body(std::string_view body);

// Some clients begin a text with the mark U+FEFF; a parser skips it.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace onw::server
