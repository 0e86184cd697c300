#include "text/branch_points.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace onw {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Another text for a message, which differs from its own in the first letter: a template may trim both.
std::string other_text(const std::string& content) {
  const auto first = content.find_first_not_of(" \t\r\n");
  return first != std::string::npos && content[first] == 'x' ? "y" : "x";
}

class Branches {
 public:
  Branches(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const ChatPrompt& prompt)
      : chat_template_(chat_template), prompt_(prompt), special_(text_of(ordered_json(tokenizer.special_tokens()))) {}

  // Where the prompts of this request and of `other` part, `before` tokens earlier.
  void add(const ordered_json& other, int64_t before) {
    const auto text = chat_template_.render(text_of(other), special_);
    if (!text) return;
    const auto parted = std::ranges::mismatch(*text, prompt_.text).in2 - prompt_.text.begin();
    const auto& offsets = prompt_.encoding.offsets;
    const auto after = std::ranges::find_if(offsets, [&](const auto& range) { return range.second > parted; });
    const int64_t tokens = after - offsets.begin() - before;
    if (tokens > 0 && tokens < static_cast<int64_t>(offsets.size())) points_.insert(tokens);
  }

  std::vector<int64_t> take() const { return {points_.begin(), points_.end()}; }

 private:
  const ChatTemplate& chat_template_;
  const ChatPrompt& prompt_;
  std::string special_;
  std::set<int64_t> points_;
};

}  // namespace

std::vector<int64_t> branch_points(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                   std::string_view request_json, const ChatPrompt& prompt) {
  const auto request = ordered_json::parse(request_json, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object() || !request.contains("messages") || !request["messages"].is_array()) return {};
  const auto& messages = request["messages"];
  Branches branches(tokenizer, chat_template, prompt);
  const auto other_content = [&](size_t index) {
    const auto& message = messages[index];
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string()) return;
    ordered_json other = request;
    other["messages"][index]["content"] = other_text(message["content"].get<std::string>());
    branches.add(other, 1);  // a token may reach across the beginning of a text
  };
  const bool system = messages.size() > 2 && messages[0].is_object() && messages[0].value("role", "") == "system";
  if (system) other_content(1);
  if (!messages.empty()) other_content(messages.size() - 1);
  ordered_json without = request;
  without["add_generation_prompt"] = false;
  branches.add(without, 0);
  return branches.take();
}

}  // namespace onw
