#include "cli/suggest.h"

#include <gtest/gtest.h>

#include <string>

namespace onw::cli {
namespace {

constexpr std::string_view kNames[] = {"pull",  "list",   "rm",     "convert",  "chat",
                                       "serve", "render", "--port", "--prompt", "--temperature"};

TEST(Suggestion, is_the_nearest_word_within_a_third_of_its_letters) {
  EXPECT_EQ(suggestion("sevre", kNames), "serve");
  EXPECT_EQ(suggestion("caht", kNames), "chat");
  EXPECT_EQ(suggestion("chats", kNames), "chat");
  EXPECT_EQ(suggestion("--prot", kNames), "--port");
  EXPECT_EQ(suggestion("--temperture", kNames), "--temperature");
  EXPECT_EQ(suggestion("conv", kNames), "convert");
  EXPECT_EQ(suggestion("--temp", kNames), "--temperature");
  for (const char* none : {"", "-", "--", "frobnicate", "zz", "--verbose"})
    EXPECT_EQ(suggestion(none, kNames), "") << none;
  EXPECT_EQ(suggestion(std::string(100'000, 's'), kNames), "");
}

TEST(Suggestion, counts_edits_and_swapped_neighbours) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);
}

}  // namespace
}  // namespace onw::cli
