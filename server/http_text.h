// The text of HTTP answers.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace onw::server {

// Status line and headers up to the empty line; `framing` is the header line that says how the body ends. A header
// whose value holds control characters is left out.
std::string response_head(const HttpResponse& response, std::string_view framing, bool keep_alive);

}  // namespace onw::server
