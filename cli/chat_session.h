// A conversation in the terminal, apart from reading lines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/answer_text.h"
#include "server/served_model.h"

namespace onw::cli {

// The answer under way, which a signal may stop from another thread.
class Running {
 public:
  void set(Generation* generation);
  // True where there was one that had not been told before.
  bool stop();
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  Generation* generation_ = nullptr;
  bool stopped_ = false;
};

struct ChatSettings {
  SamplingParams sampling;
  int64_t max_tokens = -1;
  std::string system;
  bool think = false;
};

struct Spoken {
  std::string content;
  Usage usage;
  FinishReason finish = FinishReason::none;
};

class ChatSession {
 public:
  // `content` and `reasoning` are given the pieces of an answer as they come.
  using Sink = std::function<Result<void>(std::string_view piece)>;
  ChatSession(server::ServedModel& model, ChatSettings settings, Running& running, Sink content, Sink reasoning);
  ~ChatSession();

  // Answers `message` and remembers both; after an error neither is. Without a chat template: continues the text.
  Result<Spoken> say(const std::string& message);
  void clear();

 private:
  struct Prompt {
    ChatPrompt chat;
    std::vector<int64_t> branch_points;
  };
  Result<Spoken> answer(Prompt prompt);
  Result<Prompt> prompt_for(const std::string& message) const;

  server::ServedModel& model_;
  ChatSettings settings_;
  Running& running_;
  Sink content_;
  Sink reasoning_;
  std::unique_ptr<nlohmann::ordered_json> messages_;
};

// "prompt 34 tokens at 210/s, answer 120 tokens at 45.2/s, drafts 40 of 50 right (80 %)"
std::string speeds_text(const Usage& usage);

}  // namespace onw::cli
