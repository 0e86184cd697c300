#include "text/json_limits.h"

namespace onw {

Result<void> check_json_depth(std::string_view json, std::string_view what, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth)
        return error(Code::invalid_argument, "{}: JSON nested deeper than {} at byte {}. Flatten it", what, max_depth,
                     i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return {};
}

}  // namespace onw
