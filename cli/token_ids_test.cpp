#include "cli/token_ids.h"

#include <gmock/gmock.h>

namespace onw::cli {
namespace {

std::vector<int32_t> ids(std::string_view text) {
  const auto parsed = parse_token_ids(text, "ids");
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(std::vector<int32_t>{-1});
}

std::string complaint(std::string_view text) {
  const auto parsed = parse_token_ids(text, "ids");
  return parsed ? "none" : parsed.error().message;
}

TEST(TokenIds, come_by_white_space_or_as_an_array) {
  EXPECT_EQ(ids("1 2\n\t3\r\n"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(ids(" [1, 2,3]\n"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_TRUE(ids("").empty());
  EXPECT_TRUE(ids("[]").empty());
}

TEST(TokenIds, what_is_none_is_named) {
  EXPECT_THAT(complaint("1 x 3"), testing::HasSubstr("ids: 'x' is no token id"));
  EXPECT_THAT(complaint("1 -2"), testing::HasSubstr("'-2'"));
  EXPECT_THAT(complaint("1,2"), testing::HasSubstr("'1,2'"));
  EXPECT_THAT(complaint("99999999999"), testing::HasSubstr("no token id"));
  EXPECT_THAT(complaint("[1, \"2\"]"), testing::HasSubstr("\"2\" is no token id"));
  EXPECT_THAT(complaint("[1, 2"), testing::HasSubstr("JSON"));
}

}  // namespace
}  // namespace onw::cli
