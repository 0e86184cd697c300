#include "server/answer_text.h"

#include <algorithm>

namespace onw::server {
namespace {

std::vector<std::string> words(const std::optional<ReasoningTags>& tags) {
  return tags ? std::vector<std::string>{tags->open, tags->close} : std::vector<std::string>();
}

bool part_of(const std::string& word, const std::optional<ReasoningTags>& tags) {
  return tags && (tags->open.find(word) != std::string::npos || tags->close.find(word) != std::string::npos);
}

}  // namespace

AnswerStyle answer_style(const Tokenizer& tokenizer, const ChatTemplate* chat_template) {
  AnswerStyle style;
  if (chat_template != nullptr) style.tags = reasoning_tags(chat_template->source());
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.special && !part_of(token.content, style.tags)) style.hidden.push_back(token.id);
  return style;
}

AnswerText::AnswerText(const Tokenizer& tokenizer, const AnswerStyle& style, std::vector<std::string> stops,
                       std::string_view prompt)
    : style_(&style), decoder_(tokenizer), stops_(std::move(stops), words(style.tags)) {
  if (!style.tags) return;
  in_reasoning_ = begins_in_reasoning(prompt, *style.tags);
  splitter_.emplace(*style.tags, in_reasoning_);
}

// A thought that turns out to have begun unseen stays where it was told: a stream cannot take words back, and whole
// answers are the same as streamed ones.
TextDelta AnswerText::told(ReasoningSplitter::Parts parts) {
  if (!parts.reasoning.empty()) in_reasoning_ = true;
  if (!parts.content.empty()) in_reasoning_ = false;
  return {std::move(parts.content), std::move(parts.reasoning)};
}

TextDelta AnswerText::split(std::string_view text) {
  return splitter_ ? told(splitter_->push(text)) : TextDelta{std::string(text), ""};
}

Result<TextDelta> AnswerText::push(int32_t id) {
  if (std::binary_search(style_->hidden.begin(), style_->hidden.end(), id)) return TextDelta();
  const auto text = decoder_.push(id);
  RETURN_IF_ERROR(text);
  return split(stops_.push(*text));
}

Result<TextDelta> AnswerText::finish() {
  const auto text = decoder_.finish();
  RETURN_IF_ERROR(text);
  std::string rest = stops_.push(*text);
  rest += stops_.finish();
  TextDelta all = split(rest);
  if (!splitter_) return all;
  const TextDelta last = told(splitter_->finish());
  return TextDelta{all.content + last.content, all.reasoning + last.reasoning};
}

}  // namespace onw::server
