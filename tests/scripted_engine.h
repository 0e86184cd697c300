// An engine that answers what a test wrote down, token by token, on a thread of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine.h"

namespace onw::testing {

struct Script {
  std::vector<int32_t> tokens;                 // of every choice
  FinishReason finish = FinishReason::length;  // stop: the last token is the stop id
  std::optional<Error> error;                  // instead of the finish
  std::chrono::milliseconds prefill{0};        // before the first token; a cancel ends it
  std::chrono::milliseconds between{0};
};

class ScriptedEngine final : public Engine {
 public:
  explicit ScriptedEngine(Script script, int64_t context = 4096) : script_(std::move(script)) {
    setup_.context_tokens = context;
    setup_.model.vocabulary = 1000;
  }
  ~ScriptedEngine() override {
    for (auto& job : jobs_) job->cancel_all();
    for (auto& thread : threads_) thread.join();
  }

  const EngineSetup& info() const override { return setup_; }
  EngineStats stats() const override {
    EngineStats s;
    s.active = active_;
    s.waiting = waiting;
    s.device = device;
    return s;
  }

  Result<std::unique_ptr<Generation>> submit(GenerateRequest request, TokenCallback callback) override {
    if (static_cast<int64_t>(request.prompt.size()) > setup_.context_tokens)
      return error(Code::context_overflow, "the prompt has {} tokens, the context {}", request.prompt.size(),
                   setup_.context_tokens);
    const std::lock_guard lock(mutex_);
    last_prompt_ = request.prompt;
    last_branch_points_ = request.branch_points;
    auto job = std::make_shared<Job>();
    jobs_.push_back(job);
    ++active_;
    threads_.emplace_back([this, job, request = std::move(request), callback = std::move(callback)] {
      run(*job, request, callback);
      --active_;
    });
    return std::make_unique<Handle>(std::move(job));
  }

  std::vector<int32_t> last_prompt() const {
    const std::lock_guard lock(mutex_);
    return last_prompt_;
  }
  std::vector<int64_t> last_branch_points() const {
    const std::lock_guard lock(mutex_);
    return last_branch_points_;
  }
  void set_truncates_freely(bool freely) { setup_.model.truncates_freely = freely; }
  int active() const { return active_; }
  int cancelled() const { return cancelled_; }

  std::atomic<int> waiting = 0;
  DeviceReport device;  // set before the first request

 private:
  struct Job {
    std::mutex mutex;
    std::condition_variable woken;
    bool all = false;
    std::set<int> choices;

    void cancel_all() {
      const std::lock_guard lock(mutex);
      all = true;
      woken.notify_all();
    }
    void cancel_one(int choice) {
      const std::lock_guard lock(mutex);
      choices.insert(choice);
    }
    // True where the choice was cancelled, at the latest after `wait`.
    bool wait(int choice, std::chrono::milliseconds wait) {
      std::unique_lock lock(mutex);
      woken.wait_for(lock, wait, [&] { return all; });
      return all || choices.contains(choice);
    }
  };

  class Handle final : public Generation {
   public:
    explicit Handle(std::shared_ptr<Job> job) : job_(std::move(job)) {}
    ~Handle() override { job_->cancel_all(); }
    std::optional<TokenEvent> next() override { return std::nullopt; }
    void cancel() override { job_->cancel_all(); }
    void cancel(int choice) override { job_->cancel_one(choice); }

   private:
    std::shared_ptr<Job> job_;
  };

  void run(Job& job, const GenerateRequest& request, const TokenCallback& callback) {
    std::vector<bool> done(static_cast<size_t>(request.choices), false);
    const auto finish = [&](int choice, TokenEvent event, FinishReason reason) {
      event.finish = reason;
      done[static_cast<size_t>(choice)] = true;
      if (reason == FinishReason::cancelled) ++cancelled_;
      callback(std::move(event));
    };
    job.wait(-1, script_.prefill);
    const auto most = request.max_tokens < 0 ? script_.tokens.size() : static_cast<size_t>(request.max_tokens);
    const size_t count = std::min(script_.tokens.size(), most);
    for (size_t i = 0; i < count; ++i)
      for (int choice = 0; choice < request.choices; ++choice) {
        if (done[static_cast<size_t>(choice)]) continue;
        TokenEvent event = this->event(request, choice, static_cast<int64_t>(i));
        if (job.wait(choice, script_.between)) {
          event.id = -1;
          finish(choice, std::move(event), FinishReason::cancelled);
        } else if (i + 1 < count || script_.error) {
          callback(std::move(event));
        } else {
          finish(choice, std::move(event), count < script_.tokens.size() ? FinishReason::length : script_.finish);
        }
      }
    for (int choice = 0; choice < request.choices; ++choice) {
      if (done[static_cast<size_t>(choice)]) continue;
      TokenEvent event = this->event(request, choice, static_cast<int64_t>(count) - 1);
      event.id = -1;
      event.error = script_.error;
      finish(choice, std::move(event), script_.error ? FinishReason::error : FinishReason::length);
    }
  }

  TokenEvent event(const GenerateRequest& request, int choice, int64_t i) const {
    TokenEvent e;
    e.choice = choice;
    e.id = i < 0 ? -1 : script_.tokens[static_cast<size_t>(i)];
    e.logprob = -0.5F * static_cast<float>(i + 1);
    for (int rival = 0; rival < request.logprobs; ++rival)
      e.top.push_back({rival + 65, -1.0F - static_cast<float>(rival)});
    e.usage.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    e.usage.completion_tokens = i + 1;
    e.usage.decode_seconds = 0.1 * static_cast<double>(std::max<int64_t>(0, i));
    return e;
  }

  Script script_;
  EngineSetup setup_;
  mutable std::mutex mutex_;
  std::vector<int32_t> last_prompt_;
  std::vector<int64_t> last_branch_points_;
  std::vector<std::shared_ptr<Job>> jobs_;
  std::vector<std::thread> threads_;
  std::atomic<int> active_ = 0;
  std::atomic<int> cancelled_ = 0;
};

}  // namespace onw::testing
