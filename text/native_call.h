// Results of text/native as values.
#pragma once

#include <string>

#include "base/result.h"
#include "text/native/onw_text_native.h"

namespace onw::native {

// The bytes as a string; their memory goes back.
inline std::string take(OnwBytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  onw_bytes_free(bytes);
  return text;
}

// Nothing, or the error of a call that returned `status`.
inline Result<void> checked(int32_t status, OnwBytes message, const char* what) {
  if (status == ONW_OK) return {};
  const std::string text = take(message);
  if (status == ONW_PANICKED)
    return error(Code::unsupported,
                 "{}: the library gave up ({}). Very long runs of one character do this: shorten them", what, text);
  if (status == ONW_RAISED) return error(Code::invalid_argument, "{}", text);  // the chat template's own words
  return error(Code::bad_format, "{}: {}", what, text);
}

}  // namespace onw::native
