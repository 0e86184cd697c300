// One chat completion under way: from a parsed request to the last byte of its answer. After start() it lives on the
// thread of its connection, which owns it until the answer is out or the peer is gone.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/answer_text.h"
#include "server/chat_request.h"
#include "server/chat_response.h"
#include "server/http.h"
#include "server/request_log.h"
#include "server/served_model.h"

namespace onw::server {

class ChatJob : public std::enable_shared_from_this<ChatJob> {
 public:
  ChatJob(std::shared_ptr<ServedModel> model, ChatRequest request, ReplyPtr reply, Headers headers,
          std::chrono::milliseconds quiet);

  // Renders, tokenises and queues the request, or answers why not. On a worker thread.
  void start();

  // Ends the work after the running step; what was answered so far stays, the reason is an error. From any thread.
  void cancel();

 private:
  struct Choice {
    AnswerText text;
    WholeChoice whole;  // of answers that are not streamed
    bool done = false;
  };

  Result<GenerateRequest> prepare();
  ApiError with_sizes(const Error& failed) const;
  void submit(GenerateRequest request);
  void on_event(const TokenEvent& event);
  void take(Choice& choice, const TokenEvent& event);
  void emit(int index, ChoiceDelta delta);
  void finish_choice(int index, const std::string& reason);
  void finish();
  void fail(const ApiError& error);
  void add_up();
  AnswerNote note() const;
  TokenTexts token_texts(const TokenEvent& event) const;

  std::shared_ptr<ServedModel> model_;
  ChatRequest request_;
  ReplyPtr reply_;
  Headers headers_;  // of every answer: CORS
  std::chrono::milliseconds quiet_;
  ResponseHead head_;
  std::string prompt_text_;
  int64_t prompt_tokens_ = 0;
  std::vector<Choice> choices_;
  std::vector<Usage> choice_usages_;
  double decode_seconds_ = 0;  // of the slowest choice
  UsageTotals usage_;
  int open_choices_ = 0;
  bool over_ = false;
  bool cancelled_ = false;
  std::string end_;    // once it is over: stop, length, cancelled, error
  std::string fault_;  // of the server
  std::unique_ptr<Generation> generation_;
};

}  // namespace onw::server
