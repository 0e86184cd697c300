#include "server/app.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "server/request_log.h"
#include "server/service.h"
#include "tests/http_client.h"
#include "tests/scripted_engine.h"
#include "text/tiny_tokenizers.h"

namespace onw::server {
namespace {

using nlohmann::json;
using onw::testing::Script;
using onw::testing::ScriptedEngine;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::vector<int32_t> bytes(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// A server with a model that answers the script.
class Site {
 public:
  explicit Site(Script script, AppOptions options = {}, bool with_template = true, int64_t context = 4096) {
    auto engine = std::make_unique<ScriptedEngine>(std::move(script), context);
    engine_ = engine.get();
    auto model = std::make_unique<ServedModel>(
        ServedModel{.name = "org/tiny", .tokenizer = *Tokenizer::from_json(tiny::byte_level())});
    if (with_template) model->chat_template = *ChatTemplate::from_source(kTemplate);
    model->style = answer_style(model->tokenizer, with_template ? &*model->chat_template : nullptr);
    model->stop_ids = {261};
    model->engine = std::move(engine);
    model_ = std::move(model);
    HttpOptions http;
    http.record = [this](const HttpRecord& r) {
      const std::lock_guard lock(mutex_);
      log_.push_back(log_line(r, 0));
      logged_.notify_all();
    };
    service_ = *Service::start(std::move(options), std::move(http));
  }

  Site& load() {
    app().set_model(model_);
    return *this;
  }
  App& app() { return service_->app(); }
  ScriptedEngine& engine() { return *engine_; }
  HttpServer& http() { return service_->http(); }
  int port() const { return service_->http().port(); }

  // The lines of the log, once there are so many, without the time at their start and with the milliseconds as T.
  std::vector<std::string> log(size_t lines) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(logged_.wait_for(lock, std::chrono::seconds(10), [&] { return log_.size() >= lines; }));
    std::vector<std::string> told = log_;
    for (auto& line : told) {
      EXPECT_EQ(line.substr(0, 21), "1970-01-01T00:00:00Z ");
      line = std::regex_replace(line.substr(21), std::regex(" [0-9]+ms"), " Tms");
    }
    return told;
  }

  Answer post(const std::string& body, const std::vector<std::string>& headers = {}) const {
    return ask(port(), "POST", "/v1/chat/completions", body, headers);
  }
  Answer get(const std::string& path) const { return ask(port(), "GET", path); }

 private:
  ScriptedEngine* engine_;
  std::shared_ptr<ServedModel> model_;
  std::mutex mutex_;
  std::condition_variable logged_;
  std::vector<std::string> log_;
  std::unique_ptr<Service> service_;  // goes first
};

std::string question(const std::string& more = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

json parsed(const std::string& text) {
  auto value = json::parse(text, nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << text;
  return value;
}

// The data of each frame of a stream, without the last, which must be [DONE].
std::vector<json> frames(const Answer& answer) {
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.headers.at("Content-Type"), "text/event-stream");
  std::vector<json> all;
  bool done = false;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "a frame without an end";
    const auto line = answer.body.substr(at, end - at);
    at = end + 2;
    if (line[0] == ':') continue;
    EXPECT_FALSE(done) << "a frame after [DONE]";
    EXPECT_EQ(line.substr(0, 6), "data: ");
    done = line == "data: [DONE]";
    if (!done) all.push_back(parsed(line.substr(6)));
  }
  EXPECT_TRUE(done) << answer.body;
  return all;
}

struct Told {
  std::string content, reasoning, finish;
  json logprobs = json::array();
};

// What a client puts together from the frames of one choice.
Told collected(const std::vector<json>& all, int choice = 0) {
  Told told;
  for (const auto& frame : all) {
    if (!frame.contains("choices") || frame["choices"].empty() || frame["choices"][0]["index"] != choice) continue;
    const auto& c = frame["choices"][0];
    EXPECT_EQ(told.finish, "") << "a frame after the finish";
    told.content += c["delta"].value("content", "");
    told.reasoning += c["delta"].value("reasoning_content", "");
    if (c["logprobs"].is_object())
      for (const auto& token : c["logprobs"]["content"]) told.logprobs.push_back(token);
    if (c["finish_reason"].is_string()) told.finish = c["finish_reason"];
  }
  return told;
}

Told whole(const Answer& answer, size_t choice = 0) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  const auto c = parsed(answer.body)["choices"][choice];
  Told told{c["message"]["content"], c["message"].value("reasoning_content", ""), c["finish_reason"]};
  if (c["logprobs"].is_object()) told.logprobs = c["logprobs"]["content"];
  return told;
}

TEST(Server, answers_a_chat_whole_and_streamed_with_the_same_words) {
  Site site({.tokens = bytes("Grüße, 世界! 😀")});
  site.load();
  const auto answer = parsed(site.post(question()).body);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "org/tiny");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Grüße, 世界! 😀");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 21);
  EXPECT_EQ(answer["usage"]["total_tokens"].get<int>(), answer["usage"]["prompt_tokens"].get<int>() + 21);
  const auto stream = frames(site.post(question(R"("stream":true)")));
  EXPECT_EQ(stream[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(collected(stream).content, "Grüße, 世界! 😀");
  EXPECT_EQ(collected(stream).finish, "length");
  EXPECT_FALSE(stream[0].contains("usage"));
}

TEST(Server, renders_the_messages_by_the_template_of_the_model) {
  Site site({.tokens = bytes("ok")});
  site.load().post(question());
  const auto prompt = *Tokenizer::from_json(tiny::byte_level());
  EXPECT_EQ(prompt.decode(site.engine().last_prompt()), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(site.engine().last_prompt()[0], 260);
}

TEST(Server, tells_the_engine_where_later_requests_will_branch_off) {
  Site site({.tokens = bytes("ok")});
  site.engine().set_truncates_freely(false);
  site.load().post(question());
  const auto prompt = site.engine().last_prompt();
  const auto tokenizer = *Tokenizer::from_json(tiny::byte_level());
  std::vector<std::string> kept;
  for (const int64_t point : site.engine().last_branch_points())
    kept.push_back(*tokenizer.decode(std::span(prompt).first(static_cast<size_t>(point))));
  EXPECT_THAT(kept, ::testing::ElementsAre("<|im_start|>user", "<|im_start|>user\nhi<|im_end|>\n"));
  site.engine().set_truncates_freely(true);
  site.post(question());
  EXPECT_TRUE(site.engine().last_branch_points().empty());  // such a state needs none
}

TEST(Server, the_stop_id_ends_the_answer_and_is_not_shown) {
  auto tokens = bytes("done");
  tokens.push_back(261);
  Site site({.tokens = tokens, .finish = FinishReason::stop});
  site.load();
  EXPECT_EQ(whole(site.post(question())).content, "done");
  EXPECT_EQ(whole(site.post(question())).finish, "stop");
}

TEST(Server, a_stop_string_ends_the_answer_and_its_work) {
  Site site({.tokens = bytes("before END after")});
  site.load();
  for (const char* stop : {R"("stop":"END")", R"("stop":["x","END"])"}) {
    const auto told = whole(site.post(question(stop)));
    EXPECT_EQ(told.content, "before ");
    EXPECT_EQ(told.finish, "stop");
    EXPECT_EQ(collected(frames(site.post(question(std::string(stop) + R"(,"stream":true)")))).content, "before ");
  }
}

// server-105
TEST(Server, tells_the_usage_of_a_stream_only_when_asked) {
  Site site({.tokens = bytes("abc")});
  site.load();
  const auto stream = frames(site.post(question(R"("stream":true,"stream_options":{"include_usage":true})")));
  for (size_t i = 0; i + 1 < stream.size(); ++i) EXPECT_TRUE(stream[i]["usage"].is_null());
  EXPECT_EQ(stream.back()["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(stream.back()["choices"].empty());
  for (const auto* lengths : {R"("max_tokens":-1)", R"("max_tokens":0)"})
    EXPECT_EQ(site.post(question(lengths)).status, 400);
  EXPECT_EQ(whole(site.post(question(R"("max_tokens":1)"))).content, "a");
  EXPECT_EQ(whole(site.post(question(R"("max_tokens":1000000000)"))).content, "abc");
}

// server-106
TEST(Server, logprobs_are_the_same_streamed_and_whole) {
  Site site({.tokens = bytes("aé")});
  site.load();
  const std::string wanted = R"("logprobs":true,"top_logprobs":2)";
  const auto told = whole(site.post(question(wanted)));
  ASSERT_EQ(told.logprobs.size(), 3U);
  EXPECT_EQ(told.logprobs[0]["token"], "a");
  EXPECT_EQ(told.logprobs[0]["top_logprobs"].size(), 2U);
  EXPECT_EQ(told.logprobs[1]["bytes"], json::array({0xc3}));
  EXPECT_EQ(collected(frames(site.post(question(wanted + R"(,"stream":true)")))).logprobs, told.logprobs);
  EXPECT_TRUE(whole(site.post(question())).logprobs.empty());
}

TEST(Server, several_choices_answer_side_by_side) {
  Site site({.tokens = bytes("same")});
  site.load();
  const auto answer = parsed(site.post(question(R"("n":3)")).body);
  ASSERT_EQ(answer["choices"].size(), 3U);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  const auto stream = frames(site.post(question(R"("n":3,"stream":true)")));
  for (int choice = 0; choice < 3; ++choice) EXPECT_EQ(collected(stream, choice).content, "same");
}

TEST(Server, does_not_cut_a_prompt_into_tokens_that_no_context_could_hold) {
  Site site({.tokens = bytes("a")}, {}, true, 20);
  const std::string text(1 << 20, '7');
  const Answer answer = site.load().post(R"({"messages":[{"role":"user","content":")" + text + R"("}]})");
  EXPECT_EQ(answer.status, 400);
  const auto error = parsed(answer.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_ctx"], 20);
  EXPECT_FALSE(error.contains("n_prompt"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("bytes, more than a context of 20 tokens can hold"));
}

// context-041
TEST(Server, refuses_a_prompt_that_does_not_fit_with_both_sizes) {
  Site site({.tokens = bytes("a")}, {}, true, 20);
  const Answer answer = site.load().post(question());
  EXPECT_EQ(answer.status, 400);
  const auto error = parsed(answer.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_ctx"], 20);
  EXPECT_GT(error["n_prompt"], 20);
  EXPECT_EQ(error["param"], "messages");
  EXPECT_EQ(site.post(question(R"("stream":true)")).status, 400);
}

TEST(Server, a_model_without_a_template_does_not_chat) {
  Site site({.tokens = bytes("a")}, {}, false);
  const Answer answer = site.load().post(question());
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("no chat template"));
}

TEST(Server, knows_only_the_model_that_it_has) {
  Site site({.tokens = bytes("a")});
  site.load();
  EXPECT_EQ(site.post(question(R"("model":"org/tiny")")).status, 200);
  EXPECT_EQ(site.post(question(R"("model":"gpt-9")")).status, 404);
  EXPECT_EQ(parsed(site.get("/v1/models").body)["data"][0]["id"], "org/tiny");
  EXPECT_EQ(parsed(site.get("/v1/models/org/tiny").body)["id"], "org/tiny");
  EXPECT_EQ(parsed(site.get("/v1/models/org%2Ftiny").body)["id"], "org/tiny");
  EXPECT_EQ(site.get("/v1/models/other").status, 404);
  const std::string long_name(5000, 'm');
  EXPECT_LT(site.post(question(R"("model":")" + long_name + '"')).body.size(), 400U);
  EXPECT_LT(site.get("/v1/models/" + long_name).body.size(), 400U);
  EXPECT_LT(site.get("/" + long_name).body.size(), 400U);
}

// server-110
TEST(Server, answers_404_where_there_is_nothing) {
  Site site({.tokens = bytes("a")});
  site.load();
  for (const char* path : {"/v1",
                           "/v1/",
                           "/v1/chat",
                           "/v1/chat/completions/",
                           "/v1/chat/completions/x",
                           "/chat/completions",
                           "/v1/messages/count_tokens",
                           "/v1/completion",
                           "/v2/models",
                           "/v1/Models",
                           "//",
                           "/../etc/passwd",
                           "/health/",
                           "/healthz",
                           "/favicon.ico",
                           "/index.html",
                           "/%2e%2e/",
                           "/v1/modelss",
                           "*",
                           "/\xff"}) {
    const Answer answer = site.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(parsed(answer.body)["error"]["code"], "unknown_path") << path;
    EXPECT_EQ(site.post("").status, 400);
  }
  const Answer wrong = site.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("Allow"), "POST");
  EXPECT_EQ(ask(site.port(), "DELETE", "/health").status, 405);
}

// text-stream-011
TEST(Server, a_body_that_is_no_utf8_gets_valid_json_and_leaves_the_server_alive) {
  Site site({.tokens = bytes("a")});
  site.load();
  const Answer answer = site.post("{\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\x28\"}]}");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(parsed(answer.body)["error"]["message"].get<std::string>(), HasSubstr("UTF-8"));
  EXPECT_EQ(site.get("/health").status, 200);
}

TEST(Server, is_loading_until_it_has_a_model) {
  Site site({.tokens = bytes("a")});
  EXPECT_EQ(site.get("/health").status, 503);
  EXPECT_EQ(parsed(site.get("/health").body)["status"], "loading");
  EXPECT_EQ(site.post(question()).status, 503);
  EXPECT_EQ(site.get("/").status, 200);
  site.load();
  EXPECT_EQ(parsed(site.get("/health").body)["status"], "ok");
}

TEST(Server, tells_where_a_device_takes_over_and_how_often_it_erred) {
  Site site({.tokens = bytes("a")});
  site.load();
  EXPECT_FALSE(parsed(site.get("/health").body).contains("device"));
  EXPECT_FALSE(parsed(site.get("/health").body).contains("drafts")) << "this engine drafts none";
  site.engine().device = {
      .device = "NPU", .state = DeviceState::given_up, .why = "something of this machine", .wrong_steps = 2};
  const auto device = parsed(site.get("/health").body)["device"];
  EXPECT_EQ(device["state"], "given up");
  EXPECT_EQ(device["wrong_steps"], 2);
  EXPECT_FALSE(device.contains("why")) << "it may name folders of this machine";
  EXPECT_EQ(site.get("/health").status, 200) << "the CPU answers";
}

TEST(Server, is_not_healthy_where_the_device_that_it_was_started_for_cannot_be_had) {
  Site site({.tokens = bytes("a")});
  site.load();
  site.engine().device = {
      .device = "NPU", .state = DeviceState::given_up, .why = "/srv/somebody/driver.so", .insisted = true};
  EXPECT_EQ(site.get("/health").status, 503);
  EXPECT_EQ(parsed(site.get("/health").body)["status"], "failing");
  for (const char* more : {"", R"("stream":true)"}) {
    const Answer answer = site.post(question(more));
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr("the NPU"));
    EXPECT_THAT(answer.body, Not(HasSubstr("somebody")));
  }
}

// server-090
TEST(Server, a_client_that_leaves_ends_the_work) {
  Site site({.tokens = bytes("never"), .prefill = std::chrono::seconds(60)});
  site.load();
  for (const char* more : {"", R"("stream":true)"}) {
    Client client(site.port());
    client.send(request_text("POST", "/v1/chat/completions", question(more)));
    while (site.engine().active() == 0) std::this_thread::sleep_for(milliseconds(1));
    client.close();
    for (int i = 0; i < 5000 && site.engine().active() > 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(site.engine().active(), 0);
  }
  EXPECT_EQ(site.engine().cancelled(), 2);
}

// server-091
TEST(Server, after_many_clients_that_left_a_normal_request_succeeds) {
  Site site({.tokens = bytes("some words that take a while"), .between = milliseconds(1)});
  site.load();
  for (int i = 0; i < 100; ++i) {
    Client client(site.port());
    client.send(request_text("POST", "/v1/chat/completions", question(R"("stream":true)")));
    if (i % 3 == 0) client.receive_until("data: ");
  }
  EXPECT_EQ(whole(site.post(question())).content, "some words that take a while");
}

// server-108
TEST(Server, a_long_prefill_is_filled_with_comments) {
  Site site({.tokens = bytes("late"), .prefill = milliseconds(200)}, {.quiet = milliseconds(20)});
  const Answer answer = site.load().post(question(R"("stream":true)"));
  EXPECT_THAT(answer.body, HasSubstr(": still working\n\n"));
  EXPECT_EQ(collected(frames(answer)).content, "late");
}

TEST(Server, an_engine_that_fails_ends_the_stream_with_an_error_and_the_last_frame) {
  Site site({.tokens = bytes("abc"), .error = Error{Code::numerics, "logits are not finite"}});
  site.load();
  const Answer answer = site.post(question());
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("logits are not finite"));
  const auto stream = frames(site.post(question(R"("stream":true)")));
  EXPECT_EQ(collected(stream).content, "abc");
  EXPECT_THAT(stream.back()["error"]["message"].get<std::string>(), HasSubstr("not finite"));
}

// server-118
TEST(Server, told_to_end_cancels_what_runs_and_says_so) {
  Site site({.tokens = bytes("never"), .prefill = std::chrono::seconds(60)});
  site.load();
  Client streamed(site.port());
  streamed.send(request_text("POST", "/v1/chat/completions", question(R"("stream":true)")));
  Client plain(site.port());
  plain.send(request_text("POST", "/v1/chat/completions", question()));
  while (site.engine().active() < 2) std::this_thread::sleep_for(milliseconds(1));
  site.app().cancel_all();
  EXPECT_EQ(frames(streamed.answer()).back()["error"]["code"], "cancelled");
  EXPECT_EQ(plain.answer().status, 503);
  EXPECT_EQ(site.post(question()).status, 503) << "new work is refused";
}

TEST(Server, drains_what_runs_and_takes_nothing_new) {
  Site site({.tokens = bytes("to the end"), .between = milliseconds(10)});
  site.load();
  Client client(site.port());
  client.send(request_text("POST", "/v1/chat/completions", question(R"("stream":true)")));
  client.receive_until("data: ");
  site.app().refuse_new_work();
  site.http().drain();
  EXPECT_EQ(collected(frames(client.answer())).content, "to the end");
  client.close();
  site.http().wait_drained();
}

TEST(Server, tells_further_requests_to_wait_when_the_queue_is_full) {
  Site site({.tokens = bytes("a")});
  site.load();
  site.engine().waiting = 1000;
  const Answer answer = site.post(question());
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.count("Retry-After"), 1U);
}

// server-111
TEST(Server, with_a_key_answers_401_with_cors_headers_and_preflights_without) {
  Site site({.tokens = bytes("a")}, {.access = {.api_key = "secret"}});
  site.load();
  const std::string origin = "Origin: http://localhost:3000";
  const Answer options = ask(site.port(), "OPTIONS", "/v1/chat/completions", "", {origin});
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("Access-Control-Allow-Origin"), "http://localhost:3000");
  const Answer refused = ask(site.port(), "GET", "/v1/models", "", {origin});
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(site.post(question(), {"Authorization: Bearer secret"}).status, 200);
  EXPECT_EQ(site.get("/health").status, 200);
  const Answer stream = site.post(question(R"("stream":true)"), {"Authorization: Bearer secret", origin});
  EXPECT_EQ(stream.headers.at("Access-Control-Allow-Origin"), "http://localhost:3000");
}

// server-115
TEST(Server, does_not_answer_under_a_strange_name) {
  Site site({.tokens = bytes("a")});
  site.load();
  for (const char* path : {"/", "/health", "/v1/models", "/nothing"})
    EXPECT_EQ(ask(site.port(), "GET", path, "", {}, "evil.example").status, 403) << path;
  EXPECT_EQ(ask(site.port(), "GET", "/health", "", {}, fmt::format("localhost:{}", site.port())).status, 200);
}

TEST(Server, logs_a_line_per_request_that_says_how_it_ended_and_nothing_that_was_said) {
  Site site({.tokens = bytes("the secret answer"), .between = milliseconds(1)});
  site.load();
  const std::string asked = R"({"messages":[{"role":"user","content":"the secret question"}])";
  site.post(asked + "}");
  site.post(asked + R"(,"stream":true,"max_tokens":3,"n":2})");
  site.post(asked + R"(,"temperature":"the secret"})");
  ask(site.port(), "GET", "/health?the=secret", "");
  const auto log = site.log(4);
  ASSERT_EQ(log.size(), 4U);
  const std::string at = "POST /v1/chat/completions 200 Tms ";
  EXPECT_EQ(log[0], at + "prompt=37 reused=0 tokens=17 tokens/s=10.0 end=length\n");
  EXPECT_EQ(log[1], at + "prompt=37 reused=0 tokens=6 tokens/s=20.0 end=length\n");
  EXPECT_EQ(log[2], "POST /v1/chat/completions 400 Tms\n");
  EXPECT_EQ(log[3], "GET /health 200 Tms\n");
}

TEST(Server, logs_answers_that_stop_fail_or_lose_their_client) {
  Site stops({.tokens = {'a', 261}, .finish = FinishReason::stop});
  stops.load().post(question());
  EXPECT_THAT(stops.log(1)[0], HasSubstr("tokens=2 tokens/s=10.0 end=stop\n"));
  Site fails({.tokens = bytes("ab"), .error = Error{Code::internal, "layer 7\nis \"broken\""}});
  fails.load().post(question(R"("stream":true)"));
  EXPECT_THAT(fails.log(1)[0], HasSubstr("end=error fault=\"layer 7%0Ais %22broken%22\"\n"));
  Site leaves({.tokens = bytes("a long answer"), .between = milliseconds(50)});
  leaves.load();
  {
    Client client(leaves.port());
    client.send(request_text("POST", "/v1/chat/completions", question(R"("stream":true)")));
    ASSERT_TRUE(client.receive_until("content\":\"a\""));
  }
  EXPECT_THAT(leaves.log(1)[0],
              ::testing::MatchesRegex("POST /v1/chat/completions 200 Tms .* tokens=[1-9].* end=cancelled\n"));
}

TEST(Server, may_end_while_a_request_is_inside) {
  for (int i = 0; i < 3; ++i) {
    auto site = std::make_unique<Site>(Script{.tokens = bytes("a")});
    site->load();
    const std::string body = R"({"messages":[)" + std::string(20 << 20, ' ') + "]}";  // takes its time to be read
    Client client(site->port());
    client.send(request_text("POST", "/v1/chat/completions", body));
    while (!site->app().busy()) std::this_thread::yield();
    site.reset();  // App's own check, and AddressSanitizer, see a handler that outlives it
  }
}

// text-stream-013
TEST(Server, random_bytes_never_leave_a_stream_without_its_last_frame) {
  uint32_t seed = 7;
  std::vector<int32_t> noise;
  for (int i = 0; i < 20'000; ++i) noise.push_back(static_cast<int32_t>((seed = seed * 1664525 + 1013904223) >> 24));
  Site site({.tokens = noise});
  site.load();
  const auto told = whole(site.post(question()));
  EXPECT_EQ(collected(frames(site.post(question(R"("stream":true)")))).content, told.content);
  for (int length = 1; length <= 100; ++length) {  // cut at any byte, streamed and whole
    const auto cut = fmt::format(R"("max_tokens":{})", length);
    const auto whole_text = whole(site.post(question(cut)));
    EXPECT_EQ(whole_text.finish, "length");
    EXPECT_EQ(collected(frames(site.post(question(cut + R"(,"stream":true)")))).content, whole_text.content) << length;
  }
}

// server-095, server-096
TEST(Server, serves_streams_and_whole_answers_beside_clients_that_leave) {
  Site site({.tokens = bytes("all at once"), .between = milliseconds(1)});
  site.load();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 6; ++i) {
        Client client(site.port());
        const bool stream = (t + i) % 2 == 0;
        client.send(request_text("POST", "/v1/chat/completions", question(stream ? R"("stream":true)" : "")));
        if (i == 2) continue;
        const Answer answer = client.answer();
        right += (stream ? collected(frames(answer)) : whole(answer)).content == "all at once" ? 1 : 0;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 5);
}

}  // namespace
}  // namespace onw::server
