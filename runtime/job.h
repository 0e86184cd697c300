// A request inside the engine: what was asked, where its events go, and who no longer wants them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/engine.h"

namespace onw {

using Clock = std::chrono::steady_clock;

// The events of one request, from the engine thread to whoever reads. Thread-safe.
class Channel {
 public:
  Channel(TokenCallback callback, int choices) : callback_(std::move(callback)), unfinished_(choices) {}

  void push(TokenEvent event);
  std::optional<TokenEvent> next();  // waits; none after the last choice's finish

  // No callback begins or is under way after this returns, unless it is the caller.
  void close();

 private:
  std::recursive_mutex mutex_;  // recursive, because a callback may drop its own Generation
  std::condition_variable_any arrived_;
  std::deque<TokenEvent> events_;
  TokenCallback callback_;
  int unfinished_;
  bool closed_ = false;
};

struct Job {
  Job(GenerateRequest asked, TokenCallback callback, uint64_t seed_used)
      : request(std::move(asked)),
        seed(seed_used),
        channel(std::move(callback), request.choices),
        cancelled(static_cast<size_t>(request.choices)),
        submitted(Clock::now()) {}

  GenerateRequest request;  // the engine thread's own from submit on
  uint64_t seed;
  Channel channel;
  std::vector<std::atomic<bool>> cancelled;  // by choice; set from any thread, never cleared
  Clock::time_point submitted;
};

// The step that runs, and whether anybody still wants it. Thread-safe.
class RunningStep {
 public:
  using Choice = std::pair<const Job*, int>;

  // On the engine thread. The token lives until end().
  const CancelToken& begin(std::vector<Choice> choices);
  void end();
  // For work that nobody asked for: only the end of the engine cancels it.
  const CancelToken& begin_unasked();

  void reconsider();  // after a choice was cancelled: nobody left, nothing to finish
  void stop();        // the engine ends: this step and all later ones are cancelled
  bool stopped();

 private:
  void cancel_if_unwanted();

  std::mutex mutex_;
  std::optional<CancelToken> token_;
  std::vector<Choice> choices_;
  bool unasked_ = false;
  bool stopped_ = false;
};

}  // namespace onw
