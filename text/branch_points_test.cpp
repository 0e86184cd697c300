#include "text/branch_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/tiny_tokenizers.h"

namespace onw {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kChatML =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content|trim + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";

// As Gemma's: the system message stands in the first question, and roles must take turns.
constexpr const char* kTurns =
    "{{ bos_token }}{% set first = '' %}{% set all = messages %}"
    "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}{% set all = messages[1:] %}"
    "{% endif %}{% for m in all %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
    "{% endif %}<|im_start|>{{ m.role }}\n{% if loop.first %}{{ first }}{% endif %}{{ m.content|trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}";

struct Parts {
  std::vector<std::string> kept;  // the text up to each point
  std::string text;
};

Parts parts(const char* jinja, const json& messages) {
  const auto tokenizer = Tokenizer::from_json(tiny::byte_level(), R"({"bos_token": "<s>"})").value();
  const auto chat_template = ChatTemplate::from_source(jinja).value();
  const std::string request = json{{"messages", messages}}.dump();
  const auto prompt = tokenizer.encode_chat(chat_template, request).value();
  Parts result{{}, prompt.text};
  const auto& ids = prompt.encoding.ids;
  for (const int64_t point : branch_points(tokenizer, chat_template, request, prompt))
    result.kept.push_back(tokenizer.decode(std::span(ids).first(static_cast<size_t>(point))).value());
  return result;
}

json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

TEST(BranchPoints, lie_before_the_question_and_before_the_generation_prompt) {
  EXPECT_THAT(parts(kChatML, json::array({message("user", "Grüße")})).kept,
              ElementsAre("<|im_start|>user", "<|im_start|>user\nGrüße<|im_end|>\n"));
}

TEST(BranchPoints, tell_a_system_message_from_the_conversation) {
  const json messages = {message("system", "be brief"), message("user", "xx"), message("assistant", "b"),
                         message("user", "\n c")};
  const std::string system = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user";
  const std::string turn = system + "\nxx<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user";
  EXPECT_THAT(parts(kChatML, messages).kept, ElementsAre(system, turn, turn + "\nc<|im_end|>\n"));
}

TEST(BranchPoints, keep_a_system_message_that_the_template_puts_into_the_first_question) {
  const json messages = {message("system", "be brief"), message("user", "a")};
  EXPECT_THAT(parts(kTurns, messages).kept,
              ElementsAre("<s><|im_start|>user\nbe brief\n", "<s><|im_start|>user\nbe brief\n\na<|im_end|>\n"));
}

TEST(BranchPoints, are_prefixes_of_the_next_turn_whatever_the_answer_was) {
  json messages = json::array({message("user", "first question")});
  const auto first = parts(kChatML, messages);
  messages.push_back(message("assistant", "an answer without its thoughts"));
  messages.push_back(message("user", "second question"));
  const auto second = parts(kChatML, messages);
  ASSERT_EQ(first.kept.size(), 2U);
  EXPECT_TRUE(second.text.starts_with(first.kept.back()));
  EXPECT_FALSE(second.text.starts_with(first.text));  // its generation prompt opens a thought
}

TEST(BranchPoints, are_those_of_what_the_request_says_and_not_of_control_tokens_in_it) {
  const auto got = parts(kChatML, json::array({message("user", "a<|im_end|>b")}));
  EXPECT_EQ(got.kept.back(), "<|im_start|>user\na<|im_end|>b<|im_end|>\n");
}

TEST(BranchPoints, are_none_where_nothing_can_branch_off) {
  EXPECT_THAT(parts("{{ messages|length }}", json::array()).kept, IsEmpty());
  EXPECT_THAT(parts("{% if messages[0].content != 'a' or not add_generation_prompt %}{{ raise_exception('no') }}"
                    "{% endif %}abc",
                    json::array({message("user", "a")}))
                  .kept,
              IsEmpty());
}

}  // namespace
}  // namespace onw
