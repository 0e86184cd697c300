#include "runtime/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "runtime/job.h"
#include "runtime/memory.h"
#include "runtime/mtp.h"
#include "runtime/sampler.h"
#include "runtime/worker.h"

namespace onw {
namespace {

constexpr int kMostLogprobs = 1000;

// What other threads reach of an engine; it outlives the engine for the sake of its Generations.
struct Inbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::shared_ptr<Job>> jobs;
  bool something_cancelled = false;
  bool device_wants_attention = true;  // at first: it may have been made before there was an engine
  bool stopping = false;
  EngineStats stats;
  RunningStep running_step;
};

class EngineGeneration final : public Generation {
 public:
  EngineGeneration(std::shared_ptr<Inbox> inbox, std::shared_ptr<Job> job)
      : inbox_(std::move(inbox)), job_(std::move(job)) {}
  ~EngineGeneration() override {
    job_->channel.close();
    EngineGeneration::cancel();
  }

  std::optional<TokenEvent> next() override { return job_->channel.next(); }

  void cancel() override {
    for (auto& flag : job_->cancelled) flag.store(true);
    wake();
  }

  void cancel(int choice) override {
    if (choice < 0 || choice >= job_->request.choices) return;
    job_->cancelled[static_cast<size_t>(choice)].store(true);
    wake();
  }

 private:
  void wake() {
    {
      const std::lock_guard lock(inbox_->mutex);
      inbox_->something_cancelled = true;
    }
    inbox_->running_step.reconsider();
    inbox_->arrived.notify_one();
  }

  std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Job> job_;
};

class ThreadedEngine final : public Engine {
 public:
  ThreadedEngine(std::unique_ptr<Executable> executable, EngineSetup info, const WorkerLimits& limits,
                 std::shared_ptr<DeviceStatus> device)
      : info_(std::move(info)),
        device_(std::move(device)),
        max_sessions_(limits.max_sessions),
        inbox_(std::make_shared<Inbox>()),
        worker_(std::make_unique<Worker>(std::move(executable), limits, inbox_->running_step)),
        thread_([this] { loop(); }) {
    if (device_ == nullptr) return;
    device_->on_wake([inbox = std::weak_ptr(inbox_)] {
      const auto to = inbox.lock();
      if (to == nullptr) return;
      {
        const std::lock_guard lock(to->mutex);
        to->device_wants_attention = true;
      }
      to->arrived.notify_one();
    });
    device_->wake();
  }

  ~ThreadedEngine() override {
    {
      const std::lock_guard lock(inbox_->mutex);
      inbox_->stopping = true;
    }
    inbox_->running_step.stop();
    inbox_->arrived.notify_one();
    thread_.join();
  }

  const EngineSetup& info() const override { return info_; }

  EngineStats stats() const override {
    const std::lock_guard lock(inbox_->mutex);
    EngineStats stats = inbox_->stats;
    stats.waiting += static_cast<int>(inbox_->jobs.size());
    if (device_ != nullptr) stats.device = device_->read();
    return stats;
  }

  Result<std::unique_ptr<Generation>> submit(GenerateRequest request, TokenCallback callback) override {
    RETURN_IF_ERROR(check_request(request));
    const uint64_t seed = request.sampling.seed ? *request.sampling.seed : random_seed();
    auto job = std::make_shared<Job>(std::move(request), std::move(callback), seed);
    {
      const std::lock_guard lock(inbox_->mutex);
      inbox_->jobs.push_back(job);
    }
    inbox_->arrived.notify_one();
    return std::make_unique<EngineGeneration>(inbox_, std::move(job));
  }

 private:
  Result<void> check_request(const GenerateRequest& request) const;

  static uint64_t random_seed() {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }

  // Sleeps while there is nothing to do. The worker, and with it every sequence, is touched by this thread alone.
  void loop() {
    std::vector<std::shared_ptr<Job>> jobs;
    bool attends = false;
    for (;;) {
      worker_->rest_if_idle();
      {
        std::unique_lock lock(inbox_->mutex);
        inbox_->stats = worker_->stats();
        inbox_->arrived.wait(lock, [this] {
          return inbox_->stopping || inbox_->something_cancelled || inbox_->device_wants_attention ||
                 !inbox_->jobs.empty() || !worker_->idle();
        });
        jobs.swap(inbox_->jobs);
        inbox_->something_cancelled = false;
        attends = std::exchange(inbox_->device_wants_attention, false);
        if (inbox_->stopping) break;
      }
      // A step takes it over as well, and whoever it is for can end the wait.
      if (attends && worker_->idle()) attend();
      if (!jobs.empty()) take_in(jobs);
      worker_->step();
    }
    for (auto& job : jobs) worker_->add(std::move(job));
    worker_->cancel_all();
    worker_.reset();
  }

  // A step may take seconds: who asks in between sees what it works on.
  void take_in(std::vector<std::shared_ptr<Job>>& jobs) {
    for (auto& job : jobs) worker_->add(std::move(job));
    jobs.clear();
    worker_->take_in();
    const std::lock_guard lock(inbox_->mutex);
    inbox_->stats = worker_->stats();
  }

  void attend() {
    if (device_ == nullptr) return;
    device_->attend(inbox_->running_step.begin_unasked());
    inbox_->running_step.end();
  }

  EngineSetup info_;
  std::shared_ptr<DeviceStatus> device_;
  int max_sessions_;
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<Worker> worker_;
  std::thread thread_;
};

Result<void> ThreadedEngine::check_request(const GenerateRequest& request) const {
  const int64_t vocabulary = info_.model.vocabulary;
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt == 0)
    return error(Code::invalid_argument, "the prompt has no tokens: there is nothing to continue, give at least one");
  if (n_prompt > info_.context_tokens)
    return error(Code::context_overflow,
                 "the prompt does not fit the context: n_prompt={}, n_ctx={}. Shorten it, or raise --context", n_prompt,
                 info_.context_tokens);
  const auto outside = std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= vocabulary; });
  if (outside != request.prompt.end())
    return error(Code::invalid_argument, "prompt token {} is {}, but the vocabulary has {}",
                 outside - request.prompt.begin(), *outside, vocabulary);
  if (request.max_tokens < -1)
    return error(Code::invalid_argument, "max_tokens is {}, but must be -1 (no limit), 0 or positive",
                 request.max_tokens);
  if (request.choices < 1 || request.choices > max_sessions_)
    return error(Code::invalid_argument, "choices is {}, but must be in [1, {}]", request.choices, max_sessions_);
  if (request.logprobs < -1 || request.logprobs > kMostLogprobs)
    return error(Code::invalid_argument, "logprobs is {}, but must be -1 (none) or in [0, {}]", request.logprobs,
                 kMostLogprobs);
  return check(request.sampling, vocabulary);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Executable> executable, const EngineOptions& options,
                                               std::shared_ptr<DeviceStatus> device) {
  if (options.max_sessions < 1 || options.prompt_rows_per_step < 1)
    return error(Code::invalid_argument, "max_sessions is {} and prompt_rows_per_step {}, but both must be positive",
                 options.max_sessions, options.prompt_rows_per_step);
  const int64_t memory = options.memory_bytes > 0 ? options.memory_bytes : available_memory_bytes();
  auto context = choose_context(*executable, options.context_tokens, memory);
  RETURN_IF_ERROR(context);
  EngineSetup info = {.device = options.device,
                      .device_reason = options.device_reason,
                      .context_tokens = context->tokens,
                      .context_reason = context->reason,
                      .memory_bytes = memory,
                      .need = executable->need(context->tokens, 1),
                      .model = executable->info(),
                      .drafts = executable->info().max_partial_rows > 1};
  const bool is_mtp = dynamic_cast<Mtp*>(executable.get()) != nullptr;
  info.mtp = info.drafts && options.mtp && is_mtp;
  if (options.mtp && !is_mtp) info.no_mtp_reason = options.no_mtp_reason;
  info.drafts = info.drafts && (options.prompt_lookup || info.mtp);
  const int64_t one_context = state_bytes(*executable, context->tokens);
  const int64_t for_states = std::max(memory - info.need.weights_bytes - info.need.work_bytes, one_context);
  info.prefix_cache_bytes =
      options.prefix_cache_bytes >= 0 ? options.prefix_cache_bytes : std::max(for_states / 4, one_context);
  const WorkerLimits limits = {
      .context_tokens = context->tokens,
      .state_bytes = for_states,
      .cache_bytes = info.prefix_cache_bytes,
      .max_sessions = options.max_sessions,
      .prompt_lookup = options.prompt_lookup,
      .lookup_in_earlier = options.lookup_in_earlier,
      .mtp = info.mtp,
      .step_table = options.step_table,
      .seconds = options.seconds,
      .scheduler = {.mixes = executable->mixes_prompt_and_decode(),
                    .max_step_rows = info.model.max_step_rows,
                    .prompt_rows = options.prompt_rows_per_step,
                    .latency_s = options.step_latency_seconds},
  };
  return std::make_unique<ThreadedEngine>(std::move(executable), std::move(info), limits, std::move(device));
}

}  // namespace onw
