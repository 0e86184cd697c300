// From tokens to what a person reads: one pipeline for the server, streamed or not, and for the chat in the terminal.
// tokens -> UTF-8 -> stop strings -> reasoning and content, with one finish().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/reasoning.h"
#include "text/stop_filter.h"
#include "text/text.h"

namespace onw::server {

struct TextDelta {
  std::string content;
  std::string reasoning;
};

// What a model's answers hold beside plain text; the same for all of them.
struct AnswerStyle {
  std::optional<ReasoningTags> tags;  // of its template
  std::vector<int32_t> hidden;  // ascending: special tokens that no one is shown; those of the tags are not among them
};
AnswerStyle answer_style(const Tokenizer& tokenizer, const ChatTemplate* chat_template);

class AnswerText {
 public:
  // `prompt` is the rendered prompt: its end says whether the answer begins inside a thought. The tags are known before
  // stop strings are looked for, so "<" as a stop hides no "</think>". `style` must outlive this.
  AnswerText(const Tokenizer& tokenizer, const AnswerStyle& style, std::vector<std::string> stops,
             std::string_view prompt);

  // What the token makes certain. After stopped() nothing comes any more.
  Result<TextDelta> push(int32_t id);
  // What was held back; call it once, at the end.
  Result<TextDelta> finish();

  bool stopped() const { return stops_.stopped(); }    // by a stop string, which is not shown
  bool in_reasoning() const { return in_reasoning_; }  // where the last text belonged

 private:
  TextDelta split(std::string_view text);
  TextDelta told(ReasoningSplitter::Parts parts);

  const AnswerStyle* style_;
  StreamDecoder decoder_;
  StopFilter stops_;
  std::optional<ReasoningSplitter> splitter_;
  bool in_reasoning_ = false;
};

}  // namespace onw::server
