// What the engine thread does, step by step, without the thread: admits sessions, plans a step, runs it, draws.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/mtp_drafts.h"
#include "runtime/prefix_cache.h"
#include "runtime/prompt_lookup.h"
#include "runtime/scheduler.h"
#include "runtime/session.h"
#include "runtime/step_costs.h"
#include "targets/rest.h"

namespace onw {

struct WorkerLimits {
  int64_t context_tokens = 0;
  int64_t state_bytes = 0;  // of all sequences, running and cached
  int64_t cache_bytes = 0;  // of the cached ones
  int max_sessions = 32;
  bool prompt_lookup = true;
  bool lookup_in_earlier = false;
  bool mtp = false;                       // drafts by the layer of an executable that is an Mtp
  std::filesystem::path step_table = {};  // as EngineOptions says
  SecondsClock seconds = steady_seconds;
  SchedulerLimits scheduler;
};

class Worker {
 public:
  Worker(std::unique_ptr<Executable> executable, const WorkerLimits& limits, RunningStep& running_step);
  ~Worker();  // keeps the measured costs of steps
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::shared_ptr<Job> job);
  bool idle() const { return active_.empty() && waiting_.empty(); }
  // Tells the executable whether answers are under way.
  void rest_if_idle() { rest(*executable_, idle()); }

  // Ends what was cancelled and takes in what fits, as step() does first: stats() then tells what the step works on.
  void take_in();
  // take_in(), then runs one step and reports its tokens. With nothing to do it returns.
  void step();
  void cancel_all();

  EngineStats stats() const;

 private:
  struct Part {  // of a step
    Session* session = nullptr;
    int rows = 0;  // a drafted token's each among them
  };

  // worker.cpp: a step
  void end_cancelled();
  std::vector<Part> plan();
  void run(std::span<const Part> parts);
  Result<Outputs> run_rows(std::span<const Part> parts);
  void learn_cost(std::span<const Part> parts, double seconds);
  void take(std::span<const Part> parts, const Outputs& outputs);
  void keep(Session& session, int rows);
  void next_token(Session& session, std::span<const float> logits);
  void draw(Session& session, std::span<const float> logits);
  void begin_other_choices(Session& first, std::span<const float> logits);
  void fail(Session& session, Error why);
  void remove_finished();

  // worker_drafts.cpp: tokens tried ahead
  void plan_drafts();
  DraftOffer offer(Session& session);
  void draft_together(std::span<Session* const> sessions, int most_rows);
  std::vector<std::unique_ptr<Drafter>> ladder(Session& session);
  bool run_without_drafts(std::span<const Part> parts);
  void charge_drafts(std::span<const Part> parts);
  void take_drafted(Session& session, std::span<const float> logits);
  DraftTimes draft_times(int sessions, int64_t depth) const;
  void make_drafts(std::span<Session* const> sessions, const DraftPlan& plan);

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
  StepCosts step_costs_;
  std::unique_ptr<MtpDrafts> mtp_;                // null where there is no such layer
  std::shared_ptr<EarlierText> earlier_;          // null where it is not asked for
  std::vector<std::unique_ptr<Session>> active_;  // in the order in which they began
  std::deque<std::unique_ptr<Session>> waiting_;
  uint64_t sessions_ = 0;
  double slowness_ = 1;  // seconds that steps take, over what the target estimates
  EngineStats stats_;
};

}  // namespace onw
