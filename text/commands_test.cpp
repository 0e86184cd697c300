#include "text/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/clock.h"
#include "text/tiny_tokenizers.h"

namespace onw {
namespace {

using testing::HasSubstr;

Tokenizer tiny_tokenizer() { return Tokenizer::from_json(tiny::byte_level(), R"({"bos_token": "<s>"})").value(); }

TEST(TokenizeCommand, writes_ids_pieces_and_offsets) {
  EXPECT_EQ(tokenize_command(tiny_tokenizer(), {.json = true}, "a he").value(),
            R"({"ids":[97,258],"offsets":[[0,1],[1,4]],"pieces":["a","Ġhe"]})"
            "\n");
  EXPECT_EQ(tokenize_command(tiny_tokenizer(), {.bos = true}, "a").value(),
            "      id    begin      end  piece\n"
            "     259        0        0  \"<s>\"\n"
            "      97        0        1  \"a\"\n");
}

TEST(TokenizeCommand, reads_ids_by_white_space_or_as_an_array) {
  const auto decoded = [](std::string_view ids) { return tokenize_command(tiny_tokenizer(), {.decode = true}, ids); };
  EXPECT_EQ(decoded("97 258\n261").value(), "a he<|im_end|>");
  EXPECT_EQ(decoded("[97, 258]").value(), "a he");
  EXPECT_EQ(decoded("").value(), "");
  EXPECT_THAT(decoded("97 5000").error().message, HasSubstr("5000 is the id of no token: the vocabulary has"));
  EXPECT_THAT(decoded("97 x").error().message, HasSubstr("byte 3: 'x' is not an id"));
  EXPECT_FALSE(decoded("-1"));
  EXPECT_FALSE(decoded("99999999999"));
}

TEST(RenderCommand, knows_the_special_tokens_of_the_model_and_of_the_request) {
  const auto chat_template = ChatTemplate::from_source("{{ bos_token }}{{ eos_token }}").value();
  const auto tokenizer = tiny_tokenizer();
  const auto rendered = [&](const Tokenizer* known, const char* request) {
    return render_command(chat_template, known, request).value();
  };
  EXPECT_EQ(rendered(&tokenizer, R"({"messages": []})"), "<s>");
  EXPECT_EQ(rendered(&tokenizer, R"({"messages": [], "special_tokens": {"eos_token": "E"}})"), "<s>E");
  EXPECT_EQ(rendered(nullptr, R"({"messages": [], "special_tokens": {"bos_token": "B"}})"), "B");
  EXPECT_FALSE(render_command(chat_template, &tokenizer, "[1"));
}

TEST(Clock, prints_as_python_does) {
  const auto time = parse_iso8601("2026-01-31T12:34:56.25").value();
  EXPECT_EQ(format_time(time, "%Y-%m-%d %a %j %H:%M:%S.%f"), "2026-01-31 Sat 031 12:34:56.250000");
  EXPECT_EQ(format_time(time, "[%Z%z]%%%"), "[]%%");
  EXPECT_EQ(format_time(time, ""), "");
  EXPECT_EQ(format_time(parse_iso8601("2024-02-29").value(), "%d %b %Y"), "29 Feb 2024");
  EXPECT_EQ(format_time(local_now(), "%Y").size(), 4u);
  for (const char* bad : {"", "today", "2026-02-30", "2026-01-31T25:00", "2026-01-31x12:00", "2026-01-31T12"})
    EXPECT_FALSE(parse_iso8601(bad)) << bad;
}

}  // namespace
}  // namespace onw
