#include "cli/line_editor.h"

#include <gtest/gtest.h>

#include <vector>

namespace onw::cli {
namespace {

std::string message(const std::vector<std::string>& lines) {
  MessageLines m;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool more = m.add(lines[i]);
    EXPECT_EQ(more, i + 1 < lines.size()) << lines[i];
  }
  return m.take();
}

TEST(MessageLines, one_line_is_a_message) {
  EXPECT_EQ(message({"hello"}), "hello");
  EXPECT_EQ(message({""}), "");
}

TEST(MessageLines, a_backslash_at_the_end_goes_on) { EXPECT_EQ(message({"a\\", "b\\", "c"}), "a\nb\nc"); }

TEST(MessageLines, three_quotes_hold_everything_between) {
  EXPECT_EQ(message({"\"\"\"", "a\\", "", "b", "\"\"\""}), "a\\\n\nb");
  EXPECT_EQ(message({"\"\"\"", "\"\"\""}), "");
  EXPECT_EQ(message({"say \"\"\""}), "say \"\"\"");
}

}  // namespace
}  // namespace onw::cli
