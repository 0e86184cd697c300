#include "server/answer_text.h"

#include <gtest/gtest.h>

#include "text/tiny_tokenizers.h"

namespace onw::server {
namespace {

constexpr int32_t kThink = 262, kThinkEnd = 263, kImStart = 260;

std::vector<int32_t> bytes(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<int32_t> joined(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Tokenizer& tokenizer() {
  static const Tokenizer it = *Tokenizer::from_json(tiny::byte_level());
  return it;
}

AnswerStyle thinking() {
  const auto chat_template = ChatTemplate::from_source("{{ '<think>' }}");
  return answer_style(tokenizer(), &*chat_template);
}

struct Told {
  std::string content, reasoning;
  bool stopped = false;
  bool operator==(const Told&) const = default;
};

// What is told in all; no piece may be taken back, so pieces are joined as a client joins them.
Told answer(const std::vector<int32_t>& ids, const AnswerStyle& style, std::vector<std::string> stops = {},
            std::string_view prompt = "") {
  AnswerText text(tokenizer(), style, std::move(stops), prompt);
  Told told;
  const auto add = [&](Result<TextDelta> delta) {
    EXPECT_TRUE(delta.has_value());
    told.content += delta->content;
    told.reasoning += delta->reasoning;
  };
  for (const int32_t id : ids) {
    if (!text.stopped()) add(text.push(id));
  }
  add(text.finish());
  told.stopped = text.stopped();
  return told;
}

// text-stream-001
TEST(AnswerText, tells_a_character_whole_though_its_bytes_come_one_by_one) {
  const AnswerStyle plain;
  AnswerText text(tokenizer(), plain, {}, "");
  std::vector<std::string> pieces;
  for (const int32_t id : bytes("a😀b")) pieces.push_back(text.push(id)->content);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "", "", "😀", "b"}));
}

TEST(AnswerText, ends_with_a_mark_where_a_character_was_cut) {
  EXPECT_EQ(answer(bytes("a\xf0\x9f"), {}).content, "a\xef\xbf\xbd");
}

// text-stream-005, text-stream-006
TEST(AnswerText, stops_at_a_stop_string_and_shows_no_part_of_it) {
  EXPECT_EQ(answer(bytes("go on END tail"), {}, {"END"}), (Told{"go on ", "", true}));
  EXPECT_EQ(answer(bytes("go on EN"), {}, {"END"}), (Told{"go on EN", "", false}));
}

TEST(AnswerText, splits_a_thought_from_the_answer) {
  const auto ids = joined({{kThink}, bytes("\nhm\n"), {kThinkEnd}, bytes("\n\nyes")});
  EXPECT_EQ(answer(ids, thinking()), (Told{"yes", "hm"}));
}

TEST(AnswerText, begins_in_the_thought_that_the_prompt_opened) {
  EXPECT_EQ(answer(joined({bytes("hm"), {kThinkEnd}, bytes("yes")}), thinking(), {}, "assistant\n<think>\n"),
            (Told{"yes", "hm"}));
  EXPECT_EQ(answer(bytes("hm"), thinking(), {}, "assistant\n<think>\n"), (Told{"", "hm"}));
}

// text-stream-010
TEST(AnswerText, a_stop_of_one_character_hides_no_end_of_a_thought) {
  const auto ids = joined({{kThink}, bytes("hm"), {kThinkEnd}, bytes("a < b")});
  EXPECT_EQ(answer(ids, thinking(), {"<"}), (Told{"a ", "hm", true}));
}

// text-stream-008
TEST(AnswerText, what_was_held_back_at_the_end_goes_through_the_same_parsers) {
  EXPECT_EQ(answer(joined({{kThink}, bytes("hm</thi")}), thinking()), (Told{"", "hm</thi"}));
  EXPECT_EQ(answer(joined({{kThink}, bytes("hm</think>")}), thinking()), (Told{"", "hm"}));
  EXPECT_EQ(answer(joined({{kThink}, bytes("hm EN")}), thinking(), {"END"}), (Told{"", "hm EN"}));
}

TEST(AnswerText, hides_special_tokens_but_not_those_of_the_thought) {
  const AnswerStyle style = thinking();
  EXPECT_EQ(answer(joined({bytes("a"), {kImStart}, bytes("b")}), style).content, "ab");
  for (const int32_t id : style.hidden) EXPECT_TRUE(id != kThink && id != kThinkEnd);
  EXPECT_FALSE(answer_style(tokenizer(), nullptr).tags.has_value());
}

TEST(AnswerText, without_a_template_that_thinks_tags_are_text) {
  EXPECT_EQ(answer(bytes("<think>hm</think>yes"), answer_style(tokenizer(), nullptr)).content, "<think>hm</think>yes");
}

}  // namespace
}  // namespace onw::server
