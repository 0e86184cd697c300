// What the engine thread does, step by step, without the thread: admits sessions, plans a step, runs it, draws.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/prefix_cache.h"
#include "runtime/scheduler.h"
#include "runtime/session.h"

namespace onw {

struct WorkerLimits {
  int64_t context_tokens = 0;
  int64_t state_bytes = 0;  // of all sequences, running and cached
  int64_t cache_bytes = 0;  // of the cached ones
  int max_sessions = 32;
  SchedulerLimits scheduler;
};

class Worker {
 public:
  Worker(std::unique_ptr<Executable> executable, const WorkerLimits& limits, RunningStep& running_step);

  void add(std::shared_ptr<Job> job);
  bool idle() const { return active_.empty() && waiting_.empty(); }

  // Ends what was cancelled, takes in what fits, runs one step and reports its tokens. With nothing to do it returns.
  void step();
  void cancel_all();

  EngineStats stats() const;

 private:
  struct Part {  // of a step
    Session* session = nullptr;
    int rows = 0;
  };

  // worker.cpp: a step
  void end_cancelled();
  std::vector<Part> plan();
  void run(std::span<const Part> parts);
  Result<Outputs> run_rows(std::span<const Part> parts);
  void learn_cost(std::span<const Part> parts, double seconds);
  void take(std::span<const Part> parts, const Outputs& outputs);
  void next_token(Session& session, std::span<const float> logits);
  void draw(Session& session, std::span<const float> logits);
  void begin_other_choices(Session& first, std::span<const float> logits);
  void fail(Session& session, Error why);
  void remove_finished();

  // worker_memory.cpp: who may run, and with which memory
  void admit();
  bool fits(const Session& next) const;
  Result<void> make_room(Session& session, int64_t tokens);
  Session* youngest() const;
  void set_aside(Session& session);
  void trim();
  int64_t held_bytes() const;
  void count_bytes();
  std::vector<Conversation*> running() const;

  std::unique_ptr<Executable> executable_;
  WorkerLimits limits_;
  RunningStep& running_step_;
  Scheduler scheduler_;
  PrefixCache cache_;
  std::vector<std::unique_ptr<Session>> active_;  // in the order in which they began
  std::deque<std::unique_ptr<Session>> waiting_;
  uint64_t sessions_ = 0;
  double slowness_ = 1;  // seconds that steps take, over what the target estimates
  EngineStats stats_;
};

}  // namespace onw
