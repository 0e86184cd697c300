// What `onw tokenize` and `onw render` do, from the text on stdin to the text on stdout.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/text.h"

namespace onw {

struct TokenizeOptions {
  bool json = false;     // {"ids":[...],"pieces":[...],"offsets":[[begin,end],...]} instead of a table
  bool bos = false;      // begins with BOS
  bool special = false;  // added tokens in the text match, as in the Python library
  bool decode = false;   // `input` is ids, by white space or as a JSON array; the result is their text
};

// Errors: input that is not UTF-8 or too long; with `decode`, what is not an id.
Result<std::string> tokenize_command(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                     std::string_view input);

// The exact prompt, with no newline added. A model's own special tokens are known to its template (`tokenizer` may be
// null, as for a template file alone); those of the request come before them.
Result<std::string> render_command(const ChatTemplate& chat_template, const Tokenizer* tokenizer,
                                   std::string_view input);

}  // namespace onw
