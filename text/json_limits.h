// Limits on JSON from outside, checked before it is parsed: a deep nest overflows the stack of most parsers and
// printers.
#pragma once

#include <string_view>

#include "base/result.h"

namespace onw {

// Refuses JSON nested deeper than `max_depth`. Looks at brackets outside of strings only; says nothing of other
// mistakes.
Result<void> check_json_depth(std::string_view json, std::string_view what, int max_depth);

}  // namespace onw
