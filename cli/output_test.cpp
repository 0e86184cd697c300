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

}  // namespace
}  // namespace onw::cli
