#include "cli/output.h"

#include <gmock/gmock.h>

#include "cli/progress.h"

namespace onw::cli {
namespace {

TEST(Table, aligns_words_left_and_numbers_right) {
  EXPECT_EQ(table({{"name", "size"}, {"b", "9 kB"}, {"größe", "10 kB"}}),
            "name    size\n"
            "b       9 kB\n"
            "größe  10 kB\n");
}

TEST(Bytes, are_shown_in_powers_of_ten) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1500), "1.5 kB");
  EXPECT_EQ(bytes_text(999'600), "1.0 MB");
  EXPECT_EQ(bytes_text(24'400'000'000), "24 GB");
}

TEST(Progress, says_share_and_amount_within_the_columns) {
  const Progress progress("weights", 2'000'000, Progress::Unit::bytes);
  EXPECT_THAT(progress.text(500'000, 80), testing::StartsWith("weights   25 %  500 kB of 2.0 MB"));
  EXPECT_EQ(progress.text(500'000, 20).size(), 19U);
}

TEST(Output, spells_out_what_a_terminal_would_obey) {
  EXPECT_EQ(printable("\x1b[31mred\x07\r\x7f"), "\\x1b[31mred\\x07\\x0d\\x7f");
  EXPECT_EQ(printable("a\tb\nGrüße 模型 \xf0\x9f\x98\x80"), "a\tb\nGrüße 模型 \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(table({{"NAME"}, {"\x1b]0;owned\x07"}}), "NAME\n\\x1b]0;owned\\x07\n");
}

}  // namespace
}  // namespace onw::cli
