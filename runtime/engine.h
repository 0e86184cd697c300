// One model, one thread that owns it, any number of requests. Everything here may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/device_status.h"
#include "runtime/generate.h"
#include "runtime/seconds_clock.h"
#include "targets/executable.h"

namespace onw {

struct EngineOptions {
  std::string device = "CPU";         // NPU | GPU | CPU | openvino:CPU | reference; empty: the NPU where one works
  std::string device_reason = {};     // why this one, for people; Engine::load says it itself
  std::string device_chosen_by = {};  // what named it, where that is no flag: "ONW_DEVICE=NPU"
  int64_t context_tokens = 0;         // 0: the least of the model's, what memory allows, and 32768
  std::optional<KvFormat> kv;         // none: the model's default
  std::optional<bool> fused;          // whether the NPU or GPU gets graphs with attention inside; none: as they have it
  int threads = 0;                    // 0: one per physical core, within the quota of the process
  int64_t memory_bytes = 0;           // for weights, states and work; 0: what the machine has available
  int64_t prefix_cache_bytes = -1;    // for states kept between requests; -1: a quarter of what states may take, and
                                      // at least one whole context
  int max_sessions = 32;              // answers computed at the same time; further requests wait
  int prompt_rows_per_step = 512;     // prompt rows in one step while nobody waits for a token
  double step_latency_seconds = .2;   // how long a prompt chunk may hold up running answers
  bool prompt_lookup = true;          // drafts from what was said before in the conversation
  // Also from the requests and answers before it, whoever's they are: how fast an answer comes then hints at what
  // others said.
  bool lookup_in_earlier = false;
  // Drafts from the layer that predicts one token further, where the executable is an Mtp (runtime/mtp.h).
  bool mtp = true;
  std::string no_mtp_reason = {};         // why it is not although the model declares one; Engine::load says it itself
  std::filesystem::path step_table = {};  // where measured costs of steps are kept; empty: measured anew each time

  // As in LoadOptions: progress of what load does once per machine and model.
  std::function<bool(int64_t done, int64_t total)> load_observer = {};

  // What people should know while the engine runs: a device that is ready, errs or is lost.
  Notice notice = {};

  SecondsClock seconds = steady_seconds;  // by which steps and drafts are timed
};

// What an engine settled on when it started.
struct EngineSetup {
  std::string device;
  std::string device_reason;  // why this one, where nobody asked for it: "this machine shows no NPU"
  int64_t context_tokens = 0;
  std::string context_reason;      // why so many, for people: "the model's", "what memory allows", ...
  int64_t memory_bytes = 0;        // the budget of everything
  int64_t prefix_cache_bytes = 0;  // of it, for states kept between requests
  MemoryNeed need;                 // one sequence at the whole context
  ExecutableInfo model;
  bool drafts = false;             // tokens may be drafted: asked for, and the target can keep a step in part
  bool mtp = false;                // also by the layer that predicts one token further
  std::string no_mtp_reason = {};  // why not, where the model declares one and it was asked for
};

// Since the engine started.
struct EngineStats {
  int active = 0;   // answers under way
  int waiting = 0;  // requests not yet begun
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // computed or reused
  int64_t reused_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t drafted_tokens = 0;
  int64_t accepted_tokens = 0;
  int64_t mtp_drafted_tokens = 0;  // of them
  int64_t mtp_accepted_tokens = 0;
  // By how many guesses were before it: those that were judged (all before them were right), and the right ones.
  std::array<int64_t, 8> mtp_judged{}, mtp_right{};
  int64_t mtp_errors = 0;  // steps of that layer that failed: nothing was drafted with them
  double mtp_seconds = 0;  // in that layer
  int64_t steps = 0;
  int64_t preemptions = 0;  // answers set aside for memory and computed again
  double busy_seconds = 0;  // inside steps
  int64_t active_bytes = 0;
  int64_t cached_bytes = 0;
  DeviceReport device;  // where a device takes over from the CPU
};

// A request under way. Destroying it cancels what is left.
class Generation {
 public:
  virtual ~Generation() = default;

  // Waits for the next event; none after the last choice has finished. Only without a callback.
  virtual std::optional<TokenEvent> next() = 0;

  // Stops after the running operation; each unfinished choice still gets its event, with FinishReason::cancelled.
  virtual void cancel() = 0;
  virtual void cancel(int choice) = 0;
};

// Called on the engine thread, in order: it must return soon, and may cancel.
using TokenCallback = std::function<void(TokenEvent)>;

class Engine {
 public:
  // Opens a model folder on a device. Errors: not_found, bad_format, unsupported, out_of_memory (says what is needed,
  // what there is, and which context would fit).
  static Result<std::unique_ptr<Engine>> load(const std::filesystem::path& model_folder, const EngineOptions& options);

  // The same around an executable that exists already; `device` is what it tells, where it is a hand-over.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<Executable> executable, const EngineOptions& options,
                                                std::shared_ptr<DeviceStatus> device = {});

  virtual ~Engine() = default;  // cancels what runs and joins the thread

  virtual const EngineSetup& info() const = 0;
  virtual EngineStats stats() const = 0;

  // Queues a request. Events go to `callback`, or without one to Generation::next. Errors: invalid_argument (an empty
  // prompt, a token outside the vocabulary, a parameter outside its range: the message names it), context_overflow
  // (the message gives n_prompt and n_ctx), out_of_memory.
  virtual Result<std::unique_ptr<Generation>> submit(GenerateRequest request, TokenCallback callback = {}) = 0;
};

}  // namespace onw
