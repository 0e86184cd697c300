// From tokens to what a person reads: one pipeline for the server, streamed or not, and for the chat in the terminal.
// tokens -> UTF-8 -> stop strings -> reasoning and content, with one finish().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/text.h"

namespace onw::server {

struct TextDelta {
  std::string content;
  std::string reasoning;
};

class AnswerText {
 public:
  // `prompt` is the rendered prompt: its end says whether the model begins inside a thought.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops, std::string_view prompt);

  // What the token makes certain. After stopped() nothing comes any more.
  Result<TextDelta> push(int32_t id);
  // What was held back; call it once, at the end.
  Result<TextDelta> finish();

  bool stopped() const;       // by a stop string, which is not shown
  bool in_reasoning() const;  // where the next text belongs

 private:
  StreamDecoder decoder_;
};

}  // namespace onw::server
