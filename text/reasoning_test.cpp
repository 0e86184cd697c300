#include "text/reasoning.h"

#include <gtest/gtest.h>

#include "text/all_splits.h"
#include "text/stop_filter.h"

namespace onw {
namespace {

const ReasoningTags kThink = {"<think>", "</think>"};

struct Answer {
  std::string reasoning, content;
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "{" << answer.reasoning << "|" << answer.content << "}";
}

Answer split(const std::vector<std::string>& pieces, bool begins_inside, const ReasoningTags& tags = kThink) {
  ReasoningSplitter splitter(tags, begins_inside);
  Answer answer;
  const auto add = [&](const ReasoningSplitter::Parts& parts) {
    if (parts.content_was_reasoning) answer.reasoning += std::exchange(answer.content, {});
    answer.reasoning += parts.reasoning;
    answer.content += parts.content;
  };
  for (const std::string& piece : pieces) add(splitter.push(piece));
  add(splitter.finish());
  return answer;
}

void expect_split(std::string_view text, bool begins_inside, const Answer& expected) {
  for (const auto& pieces : all_splits(text)) EXPECT_EQ(split(pieces, begins_inside), expected) << text;
}

TEST(ReasoningSplitter, separates_a_thought_from_the_answer_over_any_split) {
  expect_split("<think>\nhm\n\nso\n</think>\n\nyes\n", false, {"hm\n\nso", "yes\n"});
  expect_split("\n <think>hm</think>yes", false, {"hm", "yes"});
  expect_split("hm\n</think>\n\nyes", true, {"hm", "yes"});
  expect_split("<think></think>yes", false, {"", "yes"});
  expect_split(" yes\n", false, {"", " yes\n"});
  expect_split("", true, {"", ""});
}

// reasoning-026
TEST(ReasoningSplitter, takes_what_is_before_a_bare_closing_tag_for_the_thought) {
  expect_split("hm</think>yes", false, {"hm", "yes"});
  expect_split("</think>\nyes", false, {"", "yes"});
}

TEST(ReasoningSplitter, leaves_later_tags_in_the_answer) {
  expect_split("<think>a</think>b</think><think>c", false, {"a", "b</think><think>c"});
  expect_split("say <think>", false, {"", "say <think>"});
}

// text-stream-008
TEST(ReasoningSplitter, gives_an_unfinished_tag_to_the_part_that_it_stands_in) {
  expect_split("<thi", false, {"", "<thi"});
  expect_split("<think>hm</th", false, {"hm</th", ""});
  expect_split("hm\n</thinx", true, {"hm\n</thinx", ""});
  expect_split("hm\n", true, {"hm\n", ""});
}

TEST(ReasoningSplitter, shows_text_as_soon_as_it_is_no_tag) {
  ReasoningSplitter splitter(kThink, false);
  EXPECT_EQ(splitter.push("<").content, "");
  EXPECT_EQ(splitter.push("b>").content, "<b>");
  EXPECT_EQ(splitter.push("x").content, "x");
}

// text-stream-010: first stop strings, then reasoning
TEST(ReasoningSplitter, sees_its_closing_tag_behind_a_stop_filter) {
  for (const auto& pieces : all_splits("hm</think>a<b")) {
    StopFilter stops({"<"}, {kThink.open, kThink.close});
    std::vector<std::string> passed;
    for (const std::string& piece : pieces) passed.push_back(stops.push(piece));
    passed.push_back(stops.finish());
    EXPECT_EQ(split(passed, true), (Answer{"hm", "a"}));
  }
}

// reasoning-025
TEST(Reasoning, begins_where_the_prompt_ends_with_an_opening_tag) {
  EXPECT_TRUE(begins_in_reasoning("<|im_start|>assistant\n<think>\n", kThink));
  EXPECT_TRUE(begins_in_reasoning("<|start_of_role|>assistant<|end_of_role|><think>", kThink));
  EXPECT_FALSE(begins_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n", kThink));
  EXPECT_FALSE(begins_in_reasoning("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", kThink));
  EXPECT_FALSE(begins_in_reasoning("", kThink));
  const ReasoningTags channel = reasoning_tags("{{ '<|channel>thought\\n' }}").value();
  EXPECT_TRUE(begins_in_reasoning("<|turn>model\n<|channel>thought\n", channel));
  EXPECT_FALSE(begins_in_reasoning("<|turn>model\n<|channel>thought\n<channel|>", channel));
}

TEST(Reasoning, has_the_tags_that_the_template_writes) {
  EXPECT_EQ(reasoning_tags("{{ '<think>' }}")->close, "</think>");
  EXPECT_EQ(reasoning_tags("{{ content.split('</think>')[-1] }}")->open, "<think>");
  EXPECT_EQ(reasoning_tags("{{ '[THINK]' }}")->close, "[/THINK]");
  EXPECT_FALSE(reasoning_tags("{{ messages }}"));
}

}  // namespace
}  // namespace onw
