#include "server/answer_text.h"

namespace onw::server {

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<std::string>, std::string_view)
    : decoder_(tokenizer, true) {}

Result<TextDelta> AnswerText::push(int32_t id) {
  auto text = decoder_.push(id);
  RETURN_IF_ERROR(text);
  return TextDelta{std::move(*text), ""};
}

Result<TextDelta> AnswerText::finish() {
  auto text = decoder_.finish();
  RETURN_IF_ERROR(text);
  return TextDelta{std::move(*text), ""};
}

bool AnswerText::stopped() const { return false; }
bool AnswerText::in_reasoning() const { return false; }

}  // namespace onw::server
