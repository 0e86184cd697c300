#include "graph/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace onw {
namespace {

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, refuses_deep_nesting_and_takes_brackets_in_strings) {
  EXPECT_TRUE(parse_json(nested(64), "x"));
  EXPECT_EQ(parse_json(nested(65), "x").error().code, Code::bad_format);
  EXPECT_FALSE(parse_json(std::string(1 << 20, '['), "x"));
  EXPECT_FALSE(parse_json(std::string(1 << 20, '{'), "x"));
  EXPECT_TRUE(parse_json("\"\\\"" + std::string(100, '[') + "\"", "x"));
}

TEST(Json, says_where_the_text_breaks) {
  const auto broken = parse_json("{\"a\": 1,, }", "m/config.json");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("m/config.json: not valid JSON at byte 9"), std::string::npos)
      << broken.error().message;
  EXPECT_FALSE(parse_json("", "x"));
  EXPECT_FALSE(parse_json("1e999", "x"));
  EXPECT_FALSE(parse_json("\"\xc3\x28\"", "x"));
}

TEST(Json, a_value_of_another_type_is_named_and_null_is_absent) {
  const auto j =
      parse_json(R"({"i":"12","l":[1,"2"],"t":null,"long":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})", "x");
  ASSERT_TRUE(j);
  EXPECT_EQ(read_int(*j, "i", "f.json").error().message,
            "f.json: 'i' is \"12\", expected a whole number. Download the file again, or correct it");
  for (const char* absent : {"t", "nowhere"}) {
    EXPECT_EQ(read_int(*j, absent, "f.json").value(), std::nullopt);
    EXPECT_EQ(read_number(*j, absent, "f.json").value(), std::nullopt);
    EXPECT_EQ(read_bool(*j, absent, "f.json").value(), std::nullopt);
    EXPECT_TRUE(read_ints(*j, absent, "f.json").value().empty());
  }
  EXPECT_FALSE(read_number(*j, "i", "f.json"));
  EXPECT_FALSE(read_bool(*j, "i", "f.json"));
  EXPECT_FALSE(read_ints(*j, "l", "f.json"));
  EXPECT_LT(read_ints(*j, "long", "f.json").error().message.size(), 160u);
}

TEST(Json, numbers_come_out_only_as_what_they_are) {
  const auto j =
      parse_json(R"({"i":3,"f":2.0,"h":2.5,"big":18446744073709551615,"s":"3","n":null,"l":[1,2],"b":true})", "x");
  ASSERT_TRUE(j);
  EXPECT_EQ(find_int(*j, "i"), 3);
  EXPECT_EQ(find_int(*j, "f"), 2);
  EXPECT_FALSE(find_int(*j, "h"));
  EXPECT_FALSE(find_int(*j, "big"));
  EXPECT_FALSE(find_int(*j, "s"));
  EXPECT_FALSE(find_int(*j, "n"));
  EXPECT_FALSE(find_int(*j, "b"));
  EXPECT_EQ(find_number(*j, "h"), 2.5);
  EXPECT_EQ(find_ints(*j, "l"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(find_ints(*j, "i"), (std::vector<int64_t>{3}));
  EXPECT_FALSE(find_int(nlohmann::json::array(), "i"));
}

}  // namespace
}  // namespace onw
