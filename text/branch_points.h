// Where conversations branch off: lengths of a prompt up to which a later one is likely to equal it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/text.h"

namespace onw {

// Of the prompt that tokenizer.encode_chat made of this request: where the content of the first message after a system
// message begins (another conversation), where that of the last message does (an edited question), and where the
// generation prompt does (a second turn whose template rewrites the answer, or a second answer). Numbers of tokens,
// ascending, each above 0 and below the prompt's length; found by rendering the request with another ending, so that
// no template needs to be known. A template that cannot render one of them leaves it out.
std::vector<int64_t> branch_points(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                   std::string_view request_json, const ChatPrompt& prompt);

}  // namespace onw
