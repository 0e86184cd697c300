// One rendering by text/native: what ChatTemplate and Tokenizer::encode_chat share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/native/onw_text_native.h"

namespace onw::native {

struct Rendered {
  std::string text;
  std::vector<size_t> protected_ranges;  // begin and end in `text`, ascending: what came from tracked strings
};

// With `tracked_for` the strings of the request are tracked. `special_tokens`, if not empty, is a JSON object that
// stands for the request's own.
Result<Rendered> render(const OnwTemplate* chat_template, const OnwTokenizer* tracked_for,
                        std::string_view request_json, std::string_view special_tokens);

}  // namespace onw::native
