// The messages of a request in the one shape that chat templates know.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace onw::server {

// The JSON array `raw` (already parsed into `messages`) for a template: the text parts of a content are joined by line
// breaks, the role "developer" is called "system"; all else stays as it was written. Errors name the message:
// "messages[2].content".
ApiResult<std::string> template_messages(const nlohmann::json& messages, std::string_view raw);

}  // namespace onw::server
