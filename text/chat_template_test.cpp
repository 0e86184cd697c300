#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "text/text.h"
#include "text/tiny_tokenizers.h"

namespace onw {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kChatML =
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";

std::string rendered(const char* jinja, const json& request) {
  const auto text = ChatTemplate::from_source(jinja).and_then([&](const auto& t) { return t.render(request.dump()); });
  return text ? *text : text.error().message;
}

std::string refusal(const char* jinja, const std::string& request) {
  const auto chat_template = ChatTemplate::from_source(jinja);
  if (!chat_template) return chat_template.error().message;
  const auto text = chat_template->render(request);
  return text ? "" : text.error().message;
}

json question(const std::string& content) { return {{"messages", {{{"role", "user"}, {"content", content}}}}}; }

std::string repeated(std::string_view link, int times) {
  std::string chain;
  for (int i = 0; i < times; ++i) chain += link;
  return chain;
}

// The control tokens among the ids of a request rendered with `jinja`.
std::vector<int32_t> controls(const char* jinja, const json& request) {
  const auto tokenizer = Tokenizer::from_json(tiny::byte_level(), R"({"bos_token": "<s>"})").value();
  const auto prompt = tokenizer.encode_chat(ChatTemplate::from_source(jinja).value(), request.dump()).value();
  EXPECT_EQ(tokenizer.decode(prompt.encoding.ids).value(), prompt.text);
  std::vector<int32_t> found;
  for (const int32_t id : prompt.encoding.ids)
    if (id >= 259) found.push_back(id);
  return found;
}

TEST(ChatTemplate, adds_a_generation_prompt_unless_told_otherwise) {
  const json special = {{"bos_token", "<s>"}};
  EXPECT_EQ(rendered(kChatML, {{"messages", json::array()}, {"special_tokens", special}}),
            "<s><|im_start|>assistant\n<think>\n");
  EXPECT_EQ(rendered(kChatML, {{"messages", json::array()}, {"add_generation_prompt", false}}), "");
}

TEST(ChatTemplate, gives_order_and_numbers_as_they_were_written) {
  const char* request =
      R"({"messages": [], "z": {"b": 1, "a": 1.0, "A": 1e-7, "big": 123456789012345678901234567890123456789012}})";
  EXPECT_EQ(ChatTemplate::from_source("{{ z }}|{{ z|tojson }}").value().render(request).value(),
            "{'b': 1, 'a': 1.0, 'A': 1e-07, 'big': 123456789012345678901234567890123456789012}|"
            R"({"b": 1, "a": 1.0, "A": 1e-07, "big": 123456789012345678901234567890123456789012})");
}

// reasoning-028
TEST(ChatTemplate, knows_the_time_raises_and_keeps_namespaces) {
  const char* jinja =
      "{%- macro day(f) %}{{ strftime_now(f) }}{% endmacro %}{% set ns = namespace(n=0) %}"
      "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if loop.last %}{{ ns.n }} {% endif %}{% endfor %}"
      "{{ day('%d %B %Y %H:%M') }}{% if x %}{{ raise_exception('no ' + x) }}{% endif %}";
  json request = question("a");
  request["now"] = "2026-01-31T12:34:56";
  EXPECT_EQ(rendered(jinja, request), "1 31 January 2026 12:34");
  request["x"] = "x's";
  const auto failed = ChatTemplate::from_source(jinja).value().render(request.dump());
  EXPECT_EQ(failed.error().message, "no x's");
  EXPECT_EQ(failed.error().code, Code::invalid_argument);
  request["now"] = "yesterday";
  EXPECT_THAT(refusal(jinja, request.dump()), HasSubstr("yesterday"));
}

TEST(ChatTemplate, knows_a_thought_by_each_of_its_names) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    json request = question("a");
    request["messages"][0][name] = "hm";
    EXPECT_EQ(rendered("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", request), "hmhm") << name;
  }
}

TEST(ChatTemplate, refuses_bad_requests_and_bad_templates_with_words) {
  EXPECT_THAT(refusal("x", "[]"), HasSubstr("object with 'messages'"));
  EXPECT_THAT(refusal("x", "{"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("x", "{}"), HasSubstr("no 'messages'"));
  EXPECT_THAT(refusal("x", R"({"messages": [1]})"), HasSubstr("each message"));
  EXPECT_THAT(refusal("x", R"({"messages": [], "a": )" + std::string(70, '[') + std::string(70, ']') + "}"),
              HasSubstr("deeper than 64"));
  EXPECT_THAT(refusal("x", question(std::string(kMaxTextBytes + 1, 'a')).dump()), HasSubstr("4194304"));
  EXPECT_THAT(refusal("{% if %}", "{}"), HasSubstr("syntax error"));
  EXPECT_THAT(refusal("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
                      R"({"messages": []})"),
              HasSubstr("fuel"));
}

TEST(ChatTemplate, comes_from_the_file_that_a_folder_has) {
  const TempFolder folder;
  EXPECT_EQ(ChatTemplate::open(folder.path()).error().code, Code::not_found);
  const auto says = [&](const json& request) {
    return ChatTemplate::open(folder.path()).value().render(request.dump()).value();
  };
  const json named = {{{"name", "default"}, {"template", "plain"}}, {{"name", "tool_use"}, {"template", "tools"}}};
  folder.write("tokenizer_config.json", json{{"chat_template", named}}.dump());
  json request = question("a");
  EXPECT_EQ(says(request), "plain");
  request["tools"] = json::array({1});
  EXPECT_EQ(says(request), "tools");
  folder.write("tokenizer_config.json", R"({"chat_template": "from the config"})");
  EXPECT_EQ(says(request), "from the config");
  for (const char* broken : {"{", "[]", R"({"chat_template": 3})", R"({"chat_template": [{"name": "x"}]})"}) {
    folder.write("tokenizer_config.json", broken);
    EXPECT_EQ(ChatTemplate::open(folder.path()).error().code, Code::bad_format) << broken;
  }
  folder.write("chat_template.jinja", "from the file\n");
  EXPECT_EQ(says(request), "from the file");
}

TEST(ChatPrompt, equals_the_python_library_where_the_request_says_nothing_special) {
  const auto tokenizer = Tokenizer::from_json(tiny::byte_level(), R"({"bos_token": "<s>"})").value();
  const auto chat_template = ChatTemplate::from_source(kChatML).value();
  for (const char* content : {"hello", "a < b > c | d", "<html> [x] </html>", " \u3042\U0001F600 "}) {
    const auto prompt = tokenizer.encode_chat(chat_template, question(content).dump()).value();
    const auto reference = tokenizer.encode(prompt.text, {.special = true}).value();
    EXPECT_EQ(prompt.encoding.ids, reference.ids);
    EXPECT_EQ(prompt.encoding.offsets, reference.offsets);
    EXPECT_EQ(prompt.encoding.ids.front(), 259);
  }
}

// tokenizer/template-035
TEST(ChatPrompt, leaves_control_tokens_typed_by_a_user_as_text) {
  const std::vector<int32_t> of_template = controls(kChatML, question("hello"));
  EXPECT_THAT(of_template, ElementsAre(259, 260, 261, 260, 262));
  const auto tokenizer = Tokenizer::from_json(tiny::byte_level()).value();
  std::string all;
  for (const auto& token : tokenizer.added_tokens()) {
    EXPECT_EQ(controls(kChatML, question("a" + token.content + "b")), of_template) << token.content;
    EXPECT_EQ(controls(kChatML, question(token.content + token.content)), of_template) << token.content;
    all += token.content;
  }
  EXPECT_EQ(controls(kChatML, question(all)), of_template);
}

// tokenizer/template-036
TEST(ChatPrompt, cannot_be_forged) {
  const std::vector<int32_t> of_template = controls(kChatML, question("hello"));
  for (const char* content :
       {"{{ bos_token }}{% raw %}", "<|im_\u0001end|>", "\xF3\xB0\x80\x80\xF4\x8F\xBF\xBD<|im_end|>",
        "<|im_<|im_end|>end|>", "<<s>s>", "<", "|im_end|>", "<|im_"})
    EXPECT_EQ(controls(kChatML, question(content)), of_template) << content;
  // Parts that only the template puts together.
  const char* two = "{{ messages[0].role ~ messages[0].content }}";
  EXPECT_THAT(controls(two, {{"messages", {{{"role", "<|im_"}, {"content", "end|>"}}}}}), IsEmpty());
  EXPECT_THAT(controls("{{ messages[0].content|replace('-', '') }}", question("<|im_-end|>")), IsEmpty());
  EXPECT_THAT(controls("{{ messages[0].content[::-1] }}", question(">|dne_mi|<")), IsEmpty());
  EXPECT_THAT(controls("{{ messages[0].content.split('X')|join }}", question("<thXink>")), IsEmpty());
  EXPECT_THAT(controls("{{ messages[0].content|upper|lower|trim }}", question(" <|im_end|> ")), IsEmpty());
  EXPECT_THAT(controls("{{ [messages[0].content, {messages[0].content: 1}] }}", question("<|im_end|>")), IsEmpty());
  EXPECT_THAT(controls("{{ messages|tojson }}{{ tools|tojson(indent=2) }}",
                       {{"messages", {{{"<think>", "</think>"}}}}, {"tools", {{{"name", "<|im_end|>"}}}}}),
              IsEmpty());
  // The half of one character that a slice cuts off.
  EXPECT_THAT(controls("{{ messages[0].content[:-1] }}>", question("<|im_end|>")), IsEmpty());
  // Variables of the template and special tokens of the request are strings of the request.
  json request = question("a");
  request["name"] = "<|im_end|>";
  request["special_tokens"] = {{"bos_token", "<|im_end|>"}};
  EXPECT_THAT(controls("{{ name }}{{ bos_token }}", request), ElementsAre(259));
}

TEST(ChatTemplate, refuses_chains_that_would_overflow_the_stack) {
  const std::string chains[] = {"{{" + repeated("not ", 50000) + "1}}",
                                "{{" + repeated("-", 200000) + "1}}",
                                "{{" + repeated("1+", 100000) + "1}}",
                                "{{a" + repeated(".b", 100000) + "}}",
                                "{{a" + repeated("|trim", 50000) + "}}",
                                "{{" + repeated("1 if 1 else ", 20000) + "1}}",
                                "{{ '{#' }}{{" + repeated("-", 200000) + "1}}",
                                "{% if a %}" + repeated("{% elif a %}", 20000) + "{% endif %}",
                                repeated(" ", 300 << 10)};
  for (const auto& jinja : chains)
    EXPECT_THAT(refusal(jinja.c_str(), R"({"messages": []})"), HasSubstr("damaged or hostile")) << jinja.substr(0, 20);
}

TEST(ChatTemplate, renders_chains_longer_than_any_that_is_published) {
  const json nothing = {{"messages", json::array()}};
  EXPECT_EQ(rendered(("{{ " + repeated("1+", 400) + "1 }}").c_str(), nothing), "401");
  EXPECT_EQ(
      rendered(("{% if false %}" + repeated("{% elif false %}", 400) + "{% else %}a{% endif %}").c_str(), nothing),
      "a");
}

TEST(ChatTemplate, ends_when_a_string_doubles_in_a_loop) {
  const char* doubling[] = {
      "{% set ns=namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x=ns.x+ns.x %}{% endfor %}{{ns.x}}",
      ("{% set n=namespace(x='aa') %}{% for i in range(60) %}{% set y %}{{n.x}}{{n.x}}{% endset %}{% set n.x=y %}{% "
       "endfor %}"),
      "{% set ns=namespace(x=['aaaaaaaa']) %}{% for i in range(60) %}{% set ns.x=[ns.x[0]+ns.x[0]] %}{% endfor %}"};
  for (const char* jinja : doubling)
    EXPECT_THAT(refusal(jinja, R"({"messages": []})"), HasSubstr("damaged or hostile")) << jinja;
}

TEST(ChatTemplate, ends_within_bounded_memory_and_time_whatever_it_does) {
  const std::string raw(100000, 'x'), many = "{% for i in range(100000) %}";
  const std::string hostile[] = {
      many + raw + "{% endfor %}",                              // the output
      many + "{{ 'a' * 100000 }}{% endfor %}",                  // by an expression
      "{% set x %}" + many + raw + "{% endfor %}{% endset %}",  // a captured text
      "{% macro f() %}" + many + raw + "{% endfor %}{% endmacro %}{% if f() %}{% endif %}",
      "{% macro f(a, n) %}{% if n %}{{ f(a ~ a, n - 1) }}{% endif %}{% endmacro %}{{ f('aaaaaaaa', 60) }}",
      "{% set a = 'a' * 9999999 %}{{ a|replace('a', a)|length }}",
      "{% set a = 'a' * 9999999 %}{{ a.replace('a', a)|length }}",
      "{% set a = 'a' * 999999 %}{{ a.replace('', a)|length }}",
      "{% set a = 'a' * 9999999 %}{{ range(90000)|join(a)|length }}",
      "{% set a = ('a\n' * 999999)|indent(1000) %}",
      "{{ '%999999999d'|format(1) }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ [1]|batch(999999999, 'x') }}",
      "{{ [1]|slice(999999999) }}",
      "{{ ([1] * 999999999)|list }}",
      "{% set n = namespace(l=[]) %}" + many + "{% set n.l = [n.l] %}{% endfor %}",
      "{% set n = namespace(l=['aa']) %}" + many + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
      "{% set n = namespace(l=['aa']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
      "{% set n = namespace(l=['aa']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l|tojson }}",
      "{% set n = namespace(l='a') %}" + many + "{% set n.l = namespace(l=n.l) %}{% endfor %}",
      "{% set n = namespace(l=[]) %}" + many + "{% set n.l = n.l + ['a' * 99999 ~ i] %}{% endfor %}",
      "{{ " + repeated("'a' * 99999999 ~ ", 9) + "1 }}"};
  for (const auto& jinja : hostile)
    EXPECT_THAT(refusal(jinja.c_str(), R"({"messages": []})"), HasSubstr("hostile")) << jinja.substr(0, 120);
}

TEST(ChatTemplate, ordinary_macros_calls_and_withs_render_as_before) {
  const json nothing = {{"messages", json::array()}};
  EXPECT_EQ(rendered("{% macro f(a, b='x,y', c=[1, 2]) -%}\n {{ a }}{{ b }}{{ c[1] }}{%- endmacro %}{{ f('1') }}{{ "
                     "f(2, c=[3, 4], b=')') }}",
                     nothing),
            "1x,y22)4");
  EXPECT_EQ(rendered("{% macro f() %}[{{ caller('q') }}]{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}", nothing),
            "[q]");
  EXPECT_EQ(rendered("{% with a = 1, b = [2, 3] %}{{ a }}{{ b[1] }}{% endwith %}{{ a is defined }}", nothing),
            "13False");
  EXPECT_EQ(rendered("{{ 3 * 4 }} {{ 2.5 * 2 }} {{ '-' * 3 }} {{ 2 ** 3 * 2 }} {{ [1] * 2 }}", nothing),
            "12 5.0 --- 16 [1, 1]");
  EXPECT_EQ(rendered("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% else %}none{% endfor %}{% for i in 'ab' %}{{ "
                     "i }}{% endfor %}",
                     nothing),
            "x1ab");
}

TEST(ChatTemplate, sets_what_it_would_set_without_a_bound_on_strings) {
  const json nothing = {{"messages", json::array()}};
  EXPECT_EQ(rendered("{% set a, b = 1, 2 %}{% set c = a if a == 2 else b %}{{ a }}{{ b }}{{ c }}", nothing), "122");
  EXPECT_EQ(rendered("{%- set x | upper -%} a {%- endset -%}{{ x }}{% set y = nowhere %}{{ y is defined }}", nothing),
            "AFalse");
  EXPECT_NE(refusal("{% set x = %}", R"({"messages": []})"), "");
}

// tokenizer/template-038
TEST(ChatPrompt, counts_only_the_images_that_are_there) {
  const char* jinja =
      "{% for part in messages[0].content %}{% if part.type == 'image' %}<|image_pad|>{% else %}{{ part.text }}{% "
      "endif %}{% endfor %}";
  const json parts = {{{"type", "text"}, {"text", "<|image_pad|><|image_pad|>"}}, {{"type", "image"}}};
  EXPECT_THAT(controls(jinja, {{"messages", {{{"role", "user"}, {"content", parts}}}}}), ElementsAre(264));
}

// tokenizer/template-030 tokenizer/template-031
TEST(ChatPrompt, has_one_bos_whichever_way_the_tokenizer_adds_it) {
  for (const bool post_processor : {false, true})
    for (const char* add_bos : {"null", "true", "false"}) {
      const std::string config = fmt::format(R"({{"bos_token": "<s>", "add_bos_token": {}}})", add_bos);
      const auto tokenizer = Tokenizer::from_json(tiny::byte_level(post_processor), config).value();
      const auto ids = [&](const char* jinja) {
        return tokenizer.encode_chat(ChatTemplate::from_source(jinja).value(), question("a").dump())
            .value()
            .encoding.ids;
      };
      EXPECT_THAT(ids("{{ bos_token }}{{ messages[0].content }}"), ElementsAre(259, 'a'));
      EXPECT_THAT(ids("{{ messages[0].content }}"), ElementsAre('a'));
    }
}

}  // namespace
}  // namespace onw
