// The person's web browser.
#pragma once

#include <string>

namespace onw {

// Opens `url` in it; false where there is none to open. Does not wait.
bool open_in_browser(const std::string& url);

}  // namespace onw
