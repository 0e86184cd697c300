#include "server/chat_request.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/json_slices.h"
#include "server/request_fields.h"

namespace onw::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

RequestDefaults defaults() {
  RequestDefaults d;
  d.sampling.temperature = 0.6F;
  d.vocabulary = 100;
  return d;
}

// A request with one message and `more` members.
std::string body(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

ChatRequest parsed(const std::string& text) {
  const auto request = parse_chat_request(text, defaults());
  EXPECT_TRUE(request.has_value()) << text << "\n" << (request ? "" : request.error().message);
  return request.value_or(ChatRequest{});
}

ApiError refused(const std::string& text) {
  const auto request = parse_chat_request(text, defaults());
  EXPECT_FALSE(request.has_value()) << text;
  const ApiError error = request ? ApiError{} : request.error();
  EXPECT_EQ(error.status, 400);
  return error;
}

// server-103
TEST(ChatRequest, null_means_absent_for_every_field) {
  const ChatRequest plain = parsed(body(""));
  for (const auto& [field, treatment, type, fallback, meaning, range] : kRequestFields) {
    if (field == "messages" || field.find('.') != field.npos) continue;
    const ChatRequest with_null = parsed(body(fmt::format(R"("{}":null)", field)));
    EXPECT_EQ(with_null.variables, plain.variables) << field;
    EXPECT_EQ(with_null.stops, plain.stops) << field;
    EXPECT_EQ(with_null.sampling.temperature, plain.sampling.temperature) << field;
  }
}

// server-103
TEST(ChatRequest, stop_is_a_string_or_several_or_none) {
  using Stops = std::vector<std::string>;
  EXPECT_EQ(parsed(body(R"("stop":"END")")).stops, Stops{"END"});
  EXPECT_EQ(parsed(body(R"("stop":["a","b","c","d","e"])")).stops, (Stops{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(parsed(body(R"("stop":[])")).stops, Stops{});
  EXPECT_EQ(parsed(body(R"("stop":null)")).stops, Stops{});
  EXPECT_EQ(refused(body(R"("stop":"")")).param, "stop");
  EXPECT_EQ(refused(body(R"("stop":["a",3])")).param, "stop");
  EXPECT_EQ(refused(body(R"("stop":{"a":1})")).param, "stop");
}

// server-105
TEST(ChatRequest, lengths_are_positive) {
  EXPECT_EQ(parsed(body("")).max_tokens, -1);
  EXPECT_EQ(parsed(body(R"("max_tokens":1)")).max_tokens, 1);
  EXPECT_EQ(parsed(body(R"("max_tokens":1000000000)")).max_tokens, 1000000000);
  EXPECT_EQ(parsed(body(R"("max_tokens":5,"max_completion_tokens":7)")).max_tokens, 7);
  for (const char* wrong : {"0", "-1", "1.5", "\"5\"", "1e99", "[]"})
    EXPECT_EQ(refused(body(fmt::format(R"("max_tokens":{})", wrong))).param, "max_tokens") << wrong;
}

TEST(ChatRequest, takes_sampling_from_the_request_else_from_the_model) {
  EXPECT_EQ(parsed(body("")).sampling.temperature, 0.6F);
  const auto s = parsed(body(R"("temperature":0,"top_p":0.5,"top_k":7,"min_p":0.1,"seed":-3,"presence_penalty":-2,
                                "frequency_penalty":2,"repetition_penalty":1.1,"logit_bias":{"3":-100,"99":5})"))
                     .sampling;
  EXPECT_EQ(s.temperature, 0);
  EXPECT_EQ(s.top_p, 0.5F);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.1F);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(s.repetition_penalty, 1.1F);
  EXPECT_THAT(s.logit_bias, testing::UnorderedElementsAre(std::pair(3, -100.0F), std::pair(99, 5.0F)));
}

TEST(ChatRequest, names_the_field_that_is_wrong) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"temperature", "2.5"},
                                                        {"temperature", "\"hot\""},
                                                        {"top_p", "-0.1"},
                                                        {"top_p", "0"},
                                                        {"top_p", "1e-60"},
                                                        {"top_k", "1.5"},
                                                        {"n", "0"},
                                                        {"n", "33"},
                                                        {"seed", "0.5"},
                                                        {"logit_bias", "[1]"},
                                                        {"logit_bias", "{\"100\":1}"},
                                                        {"logit_bias", "{\"x\":1}"},
                                                        {"logit_bias", "{\"1\":101}"},
                                                        {"logprobs", "5"},
                                                        {"top_logprobs", "3"},
                                                        {"stream", "\"yes\""},
                                                        {"stream_options", "{}"},
                                                        {"chat_template_kwargs", "[]"},
                                                        {"chat_template_kwargs", "{\"messages\":[]}"},
                                                        {"model", "7"}}) {
    const auto error = refused(body(fmt::format(R"("{}":{})", name, value)));
    EXPECT_EQ(error.param, name) << value;
    EXPECT_THAT(error.message, testing::StartsWith(name + ": "));
  }
  EXPECT_EQ(refused(body(R"("stream":true,"stream_options":{"include_usage":1})")).param,
            "stream_options.include_usage");
}

TEST(ChatRequest, refuses_what_it_cannot_honour_and_takes_what_asks_for_nothing) {
  for (const char* wrong :
       {R"("tools":[{"type":"function","function":{"name":"f"}}])", R"("response_format":{"type":"json_object"})",
        R"("audio":{"voice":"x"})", R"("tool_choice":"required")", R"("modalities":["audio"])", R"("store":true)"})
    EXPECT_THAT(refused(body(wrong)).message, HasSubstr("is not supported")) << wrong;
  for (const char* fine : {R"("tools":[])", R"("tool_choice":"none")", R"("response_format":{"type":"text"})",
                           R"("modalities":["text"])", R"("store":false)", R"("user":"me")", R"("some_new_field":[1])"})
    parsed(body(fine));
}

// The fields that the parser reads are those of the table, with its limits: what the table says is what happens.
TEST(RequestFields, are_honoured_refused_and_ignored_as_the_table_says) {
  for (const auto& f : kRequestFields) {
    const std::string name(f.name);
    const auto with = [&](const std::string& value) {
      if (const auto dot = name.find('.'); dot != name.npos)
        return body(fmt::format(R"("stream":true,"{}":{{"{}":{}}})", name.substr(0, dot), name.substr(dot + 1), value));
      return name == "messages" ? fmt::format(R"({{"messages":{}}})", value)
                                : body(fmt::format(R"("{}":{})", name, value));
    };
    if (f.treatment == Treatment::ignored) {
      for (const char* any : {"1", "\"x\"", "[{}]", "{\"a\":[]}", "true"}) parsed(with(any));
      continue;
    }
    EXPECT_EQ(refused(with(f.type == "object" ? "3" : R"({"a":1})")).param, name);
    if (f.treatment == Treatment::refused) {
      for (size_t at = 0; at < f.type.size();) {
        const size_t end = std::min(f.type.find('|', at), f.type.size());
        parsed(with(std::string(f.type.substr(at, end - at))));
        at = end + 1;
      }
    }
    if (f.range.max == 0 || f.range.max > 1e15 || name == "n" || name == "top_logprobs") continue;
    parsed(with(fmt::format("{}", f.range.min)));
    parsed(with(fmt::format("{}", f.range.max)));
    EXPECT_EQ(refused(with(fmt::format("{}", f.range.min - 1))).param, name);
    EXPECT_EQ(refused(with(fmt::format("{}", f.range.max + 1))).param, name);
  }
}

TEST(Docs, of_the_server_show_the_table_of_fields) {
  std::ifstream file(std::string(ONW_SOURCE_DIR) + "/docs/server.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("\n\n" + request_fields_markdown() + "\n")) << "run: onw --request-fields-markdown";
}

TEST(ChatRequest, logprobs_count_the_most_likely) {
  EXPECT_EQ(parsed(body("")).logprobs, -1);
  EXPECT_EQ(parsed(body(R"("logprobs":false)")).logprobs, -1);
  EXPECT_EQ(parsed(body(R"("logprobs":true)")).logprobs, 0);
  EXPECT_EQ(parsed(body(R"("logprobs":true,"top_logprobs":20)")).logprobs, 20);
  EXPECT_EQ(refused(body(R"("logprobs":true,"top_logprobs":21)")).param, "top_logprobs");
}

TEST(ChatRequest, messages_reach_the_template_as_they_were_written) {
  const std::string messages =
      R"([{"role":"user","content":"a","weight":1.50,"z":1,"b":{"y":12345678901234567890123,"x":"\u00e9"}}])";
  const auto request = parsed(R"({"messages":)" + messages + "}");
  EXPECT_EQ(request.variables, R"({"messages":)" + messages + "}");
}

TEST(ChatRequest, messages_in_parts_become_one_text_and_developers_are_the_system) {
  const auto request = parsed(
      R"({"messages":[{"content":[{"type":"text","text":"one"},{"type":"text","text":"two \"q\""}],"role":"user","name":"n"},
         {"role":"developer","content":"rules"}]})");
  EXPECT_EQ(
      request.variables,
      R"({"messages":[{"role":"user","content":"one\ntwo \"q\"","name":"n"},{"role":"system","content":"rules"}]})");
}

TEST(ChatRequest, template_variables_follow_the_messages) {
  const auto request =
      parsed(body(R"("chat_template_kwargs":{"enable_thinking":false,"x":1.0},"reasoning_effort":"low")"));
  EXPECT_THAT(request.variables, HasSubstr(R"(],"enable_thinking":false,"x":1.0,"reasoning_effort":"low"})"));
  EXPECT_THAT(parsed(body(R"("reasoning_effort":"none")")).variables, HasSubstr(R"("enable_thinking":false)"));
}

TEST(ChatRequest, names_the_message_that_is_wrong) {
  const auto wrong = [](const std::string& message) {
    return refused(R"({"messages":[{"role":"user","content":"a"},)" + message + "]}").param;
  };
  EXPECT_EQ(wrong("3"), "messages[1]");
  EXPECT_EQ(wrong(R"({"content":"a"})"), "messages[1].role");
  EXPECT_EQ(wrong(R"({"role":"robot","content":"a"})"), "messages[1].role");
  EXPECT_EQ(wrong(R"({"role":"user"})"), "messages[1].content");
  EXPECT_EQ(wrong(R"({"role":"user","content":null})"), "messages[1].content");
  EXPECT_EQ(wrong(R"({"role":"user","content":5})"), "messages[1].content");
  EXPECT_EQ(wrong(R"({"role":"user","content":["a"]})"), "messages[1].content[0]");
  EXPECT_EQ(wrong(R"({"role":"user","content":[{"type":"text"}]})"), "messages[1].content[0].text");
  EXPECT_EQ(wrong(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]})"),
            "messages[1].content[0].type");
  EXPECT_EQ(refused(R"({"messages":[]})").param, "messages");
  EXPECT_EQ(refused(R"({"messages":"hi"})").param, "messages");
  EXPECT_EQ(refused(R"({})").param, "messages");
  parsed(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"user","content":"a"}]})");
}

TEST(ChatRequest, refuses_texts_beyond_the_limit_of_one_string) {
  const std::string long_text(size_t{4 << 20} + 1, 'a');
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":")" + long_text + R"("}]})").param, "messages[0].content");
}

TEST(ChatRequest, refuses_what_is_no_json_or_too_deep) {
  EXPECT_THAT(refused("").message, HasSubstr("the body is empty"));
  EXPECT_THAT(refused(" \n").message, HasSubstr("the body is empty"));
  EXPECT_EQ(refused("{\"messages\":").message,
            "the body is not valid JSON at byte 12 of 12: something else is expected there");
  EXPECT_EQ(refused("{\"a\":1 x}").message,
            "the body is not valid JSON at byte 8 of 9: something else is expected there");
  for (const char* half : {R"("\ud83dx")", R"("\udc00")", R"("\ud83d\u0041")"})
    EXPECT_THAT(refused(body(fmt::format(R"("user":{})", half))).message, HasSubstr("a surrogate without its other"));
  EXPECT_EQ(parsed(body(R"("stop":"\ud83d\ude00")")).stops[0], "😀");
  EXPECT_THAT(refused("[]").message, HasSubstr("must be an object"));
  EXPECT_THAT(refused(R"({"messages":[], "temperature":1e999})").message, HasSubstr("JSON"));
  for (const int depth : {65, 100'000})
    EXPECT_EQ(refused(std::string(static_cast<size_t>(depth), '[')).message,
              "the body is nested deeper than 64 levels");
}

TEST(ChatRequest, keys_with_escapes_are_the_keys_they_spell) {
  EXPECT_EQ(refused(body(R"("chat_template_kwargs":{"mess\u0061ges":[]})")).param, "chat_template_kwargs");
  EXPECT_EQ(refused(body(R"("chat_template_kwargs":{"\u0061dd_generation_prompt":false})")).param,
            "chat_template_kwargs");
  EXPECT_EQ(parsed(R"({"mess\u0061ges":[{"role":"user","content":"b"}],"max_tokens":2})").variables,
            R"({"messages":[{"role":"user","content":"b"}]})");
  EXPECT_EQ(parsed(R"({"messages":[{"r\u006fle":"developer","c\u006fntent":"b","q\"":1}]})").variables,
            R"({"messages":[{"role":"system","content":"b","q\"":1}]})");
  EXPECT_THAT(parsed(body(R"("chat_template_kwargs":{"a\"b\u000a":1.0})")).variables, HasSubstr(R"(,"a\"b\n":1.0})"));
}

TEST(ChatRequest, refuses_a_key_that_is_there_twice_and_names_it) {
  const auto twice = refused(body(R"("mess\u0061ges":[{"role":"user","content":"b"}])"));
  EXPECT_EQ(twice.param, "messages");
  EXPECT_THAT(twice.message, HasSubstr("more than once"));
  EXPECT_EQ(refused(body(R"("n":1,"n":2)")).param, "n");
  EXPECT_THAT(refused(R"({"messages":[{"role":"user","content":"a","c\u006fntent":"b"}]})").message,
              HasSubstr("messages[0]: has 'content' more than once"));
  EXPECT_THAT(refused(body(R"("chat_template_kwargs":{"x":1,"x":2})")).message, HasSubstr("'x' more than once"));
}

TEST(ChatRequest, begins_with_a_byte_order_mark_or_not) {
  EXPECT_EQ(parsed("\xEF\xBB\xBF" + body("")).variables, parsed(body("")).variables);
}

TEST(ChatRequest, refuses_more_messages_than_a_template_is_given) {
  const auto with = [](size_t count) {
    std::string list = R"({"role":"user","content":"a"})";
    for (size_t i = 1; i < count; ++i) list += R"(,{"role":"user","content":"a"})";
    return R"({"messages":[)" + list + "]}";
  };
  parsed(with(4096));
  const auto error = refused(with(4097));
  EXPECT_EQ(error.param, "messages");
  EXPECT_THAT(error.message, HasSubstr("4097 messages, at most 4096"));
}

TEST(ChatRequest, quotes_little_of_a_long_word_that_is_wrong) {
  const std::string word(10'000, 'r');
  EXPECT_LT(refused(R"({"messages":[{"role":")" + word + R"(","content":"a"}]})").message.size(), 250U);
  EXPECT_LT(refused(body(R"("logit_bias":{")" + word + R"(":1})")).message.size(), 250U);
  EXPECT_EQ(shortened("short"), "short");
  EXPECT_EQ(shortened("ab\xC3\xA9z", 3), "ab...");  // no half of a character
}

// text-stream-011
TEST(ApiError, that_quotes_bytes_which_are_no_utf8_is_valid_json) {
  const auto error = refused(body("\"x\":\"\xC3\x28\""));
  const auto text = error_json(error);
  const auto reread = json::parse(text, nullptr, false);
  ASSERT_FALSE(reread.is_discarded()) << text;
  EXPECT_THAT(reread["error"]["message"].get<std::string>(), HasSubstr("not valid JSON"));
  EXPECT_FALSE(json::parse(error_json({.message = "\xff\xfe", .param = "\xc3"}), nullptr, false).is_discarded());
}

TEST(JsonSlices, give_the_parts_as_they_were_written) {
  const std::string text = R"( { "a" : [1, 2.50 , "x,]\"}" ] ,"b":{"c":{}}, "d":null , "a": 3 } )";
  const auto all = members(text);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].first, "a");
  EXPECT_EQ(all[0].second, R"([1, 2.50 , "x,]\"}" ])");
  EXPECT_EQ(all[1].second, R"({"c":{}})");
  EXPECT_EQ(member(text, "a"), "3");
  EXPECT_EQ(member(text, "z"), "");
  EXPECT_EQ(elements(all[0].second), (std::vector<std::string_view>{"1", "2.50", R"("x,]\"}")"}));
  EXPECT_TRUE(members("{}").empty());
  EXPECT_TRUE(elements("[ ]").empty());
  EXPECT_TRUE(elements("{\"a\":1}").empty());
}

}  // namespace
}  // namespace onw::server
