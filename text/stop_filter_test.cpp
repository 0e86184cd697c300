#include "text/stop_filter.h"

#include <gtest/gtest.h>

#include "text/all_splits.h"

namespace onw {
namespace {

struct Shown {
  std::string text;
  bool stopped;
};

Shown filtered(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
               const std::vector<std::string>& tags = {}) {
  StopFilter filter(stops, tags);
  std::string text;
  for (const std::string& piece : pieces) text += filter.push(piece);
  text += filter.finish();
  return {text, filter.stopped()};
}

// text-stream-005
TEST(StopFilter, finds_a_stop_over_any_split) {
  for (const auto& pieces : all_splits("go on END tail END")) {
    const Shown shown = filtered(pieces, {"END"});
    EXPECT_EQ(shown.text, "go on ");
    EXPECT_TRUE(shown.stopped);
  }
}

// text-stream-006
TEST(StopFilter, never_shows_a_prefix_of_a_stop_that_follows) {
  for (const auto& pieces : all_splits("go on END")) {
    StopFilter filter({"END"});
    for (const std::string& piece : pieces) {
      const std::string shown = filter.push(piece);
      EXPECT_EQ(shown.find('E'), shown.npos);
    }
  }
}

TEST(StopFilter, shows_everything_where_no_stop_comes) {
  for (const auto& pieces : all_splits("an ENd, EEN, EN"))
    EXPECT_EQ(filtered(pieces, {"END", ""}).text, "an ENd, EEN, EN");
  EXPECT_EQ(filtered({"text"}, {}).text, "text");
}

TEST(StopFilter, shows_at_once_what_cannot_begin_a_stop) {
  StopFilter filter({"\n\nUser:"});
  EXPECT_EQ(filter.push("a\nb"), "a\nb");
  EXPECT_EQ(filter.push("\n"), "");
  EXPECT_EQ(filter.push("\n"), "");
  EXPECT_EQ(filter.push("\nU"), "\n");
  EXPECT_EQ(filter.push("x"), "\n\nUx");
}

TEST(StopFilter, takes_the_stop_that_is_complete_first) {
  for (const auto& pieces : all_splits("xabcdy")) {
    EXPECT_EQ(filtered(pieces, {"abcd", "bc"}).text, "xa");
    EXPECT_EQ(filtered(pieces, {"cd", "abcd"}).text, "x");
  }
  for (const auto& pieces : all_splits("aab")) EXPECT_EQ(filtered(pieces, {"ab"}).text, "a");
}

TEST(StopFilter, says_which_stop_it_was_and_shows_nothing_after_it) {
  StopFilter filter({"END", "\u3042"});
  EXPECT_EQ(filter.push("a\u3042b"), "a");
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.finish(), "");
  EXPECT_EQ(filter.stop(), "\u3042");
}

// text-stream-010
TEST(StopFilter, does_not_look_into_tags) {
  for (const auto& pieces : all_splits("hm</think>a <b")) {
    const Shown shown = filtered(pieces, {"<"}, {"<think>", "</think>"});
    EXPECT_EQ(shown.text, "hm</think>a ");
    EXPECT_TRUE(shown.stopped);
  }
  for (const auto& pieces : all_splits("a</thin")) EXPECT_EQ(filtered(pieces, {"<"}, {"</think>"}).text, "a");
}

}  // namespace
}  // namespace onw
