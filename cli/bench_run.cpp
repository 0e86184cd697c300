#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/memory.h"
#include "cli/bench_replay.h"
#include "cli/output.h"
#include "graph/ops.h"
#include "targets/op_observer.h"
#include "targets/rest.h"

namespace onw::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPromptRounds = 3;
constexpr int64_t kProfiledSteps = 8;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

namespace {

// Counts the time in graphs, and in attention by the host's kernels, while it lives; nothing where `graphs` says that
// there are none, for a target of many short ops would be slower for it.
class GraphTime final : public OpObserver {
 public:
  GraphTime(Executable& executable, bool graphs) : executable_(graphs ? &executable : nullptr) {
    if (executable_ != nullptr) executable_->observe(this);
  }
  ~GraphTime() override {
    if (executable_ != nullptr) executable_->observe(nullptr);
  }
  GraphTime(const GraphTime&) = delete;
  GraphTime& operator=(const GraphTime&) = delete;

  void seen(const SeenOp& op) override {
    if (op.kind == kGraphOp || op.kind == name(Op::attention)) seconds_ += op.seconds;
  }
  double seconds() const { return seconds_; }

 private:
  Executable* executable_;
  double seconds_ = 0;
};

double host_share(const std::vector<double>& seconds, double graphs) {
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return graphs > 0 && all > 0 ? 1 - graphs / all : -1;
}

}  // namespace

Result<Bench::Timed> Bench::time_prompt(const BenchCase& what, int rounds) {
  Timed timed;
  double graphs = 0;
  for (int round = 0; round < rounds; ++round) {
    auto batch = conversations_.at(what.depth, what.batch, what.depth + what.rows);
    RETURN_IF_ERROR(batch);
    const GraphTime graph_time(executable_, counts_graphs_);
    const auto start = Clock::now();
    RETURN_IF_ERROR(batch->feed(what.rows));
    timed.seconds.push_back(since(start));
    graphs += graph_time.seconds();
  }
  timed.host_share = host_share(timed.seconds, graphs);
  return timed;
}

Result<Bench::Timed> Bench::time_decode(const BenchCase& what, int64_t steps) {
  Timed timed;
  auto batch = conversations_.at(what.depth, what.batch, what.depth + steps);
  RETURN_IF_ERROR(batch);
  const GraphTime graph_time(executable_, counts_graphs_);
  for (int64_t i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(batch->step(1, true));
    timed.seconds.push_back(since(start));
  }
  timed.host_share = host_share(timed.seconds, graph_time.seconds());
  return timed;
}

Result<void> Bench::add_profile(BenchTiming& t) {
  t.profiled_steps = t.what.prompt ? 1 : std::min(kProfiledSteps, t.what.rows);
  RETURN_IF_ERROR(conversations_.at(t.what.depth, 1, t.what.depth + t.what.rows));  // filled before it counts
  Profile profile;
  const bool counts_graphs = std::exchange(counts_graphs_, false);
  executable_.observe(&profile);
  const auto timed = t.what.prompt ? time_prompt(t.what, 1) : time_decode(t.what, t.profiled_steps);
  executable_.observe(nullptr);
  counts_graphs_ = counts_graphs;
  RETURN_IF_ERROR(timed);
  t.profile = profile.lines(std::accumulate(timed->seconds.begin(), timed->seconds.end(), 0.0));
  return {};
}

namespace {

// The share of its experts that the first layer of them takes for a row; 0 without any.
double expert_share(const Program& program) {
  const Function* body = program.function("body");
  if (body == nullptr) return 0;
  for (const Node& n : body->nodes)
    if (n.op == Op::route)
      return static_cast<double>(n.type.last()) / static_cast<double>(body->type(n.inputs[0]).last());
  return 0;
}

void add_experts(const Program& program, const EngineInfo& engine, ModelCost& cost) {
  cost.expert_share = expert_share(program);
  double ops = 0;
  for (const ExpertRecords& records : engine.experts)
    for (const StoredWeight& part : records.parts) {
      cost.expert_bytes += records.experts * part.bytes().total();
      ops += 2 * static_cast<double>(records.experts * part.outputs() * part.inputs()) * cost.expert_share;
    }
  cost.body_ops += static_cast<int64_t>(ops);
}

}  // namespace

double ModelCost::bytes(int64_t rows) const {
  const double share = 1 - std::pow(1 - expert_share, static_cast<double>(rows));
  return static_cast<double>(step_bytes) + share * static_cast<double>(expert_bytes);
}

ModelCost model_cost(const Program& program, const EngineInfo& engine) {
  ModelCost cost;
  bool has_head = false;
  for (const auto& decl : program.weights) has_head = has_head || decl.role == WeightRole::head;
  for (const auto& weight : engine.weights) {
    const WeightDecl* decl = program.weight(weight.name);
    if (decl == nullptr) continue;
    const bool looked_up_only = decl->role == WeightRole::lookup || (decl->role == WeightRole::embedding && has_head);
    if (looked_up_only) continue;
    cost.step_bytes += weight.bytes().total();
    if (decl->role == WeightRole::vector) continue;
    const int64_t ops = 2 * weight.outputs() * weight.inputs();
    const bool body = decl->role == WeightRole::matrix || decl->role == WeightRole::router;
    (body ? cost.body_ops : cost.head_ops) += ops;
  }
  add_experts(program, engine, cost);
  return cost;
}

void Bench::count(BenchTiming& t) const {
  const BenchCase& what = t.what;
  const int64_t tokens = what.batch * (what.prompt ? what.rows : 1);
  const int64_t most = executable_.info().max_step_rows;
  const int64_t steps = what.prompt ? std::max<int64_t>(1, (tokens + most - 1) / most) : 1;
  const int64_t mean_depth = what.depth + what.rows / 2;
  const auto cache_bytes = executable_.need(mean_depth, what.batch).state_bytes;
  const int64_t step_rows = what.prompt ? std::min(tokens, most) : tokens;
  const auto bytes = static_cast<double>(steps) * (cost_.bytes(step_rows) + static_cast<double>(cache_bytes));
  const auto ops = static_cast<double>(tokens) * static_cast<double>(cost_.body_ops) +
                   what.batch * static_cast<double>(cost_.head_ops);
  t.tokens_per_s = static_cast<double>(tokens) / t.seconds;
  t.bytes_per_s = bytes / t.seconds;
  t.ops_per_s = ops / t.seconds;
}

Result<void> Bench::check_room(const BenchCase& what) const {
  if (what.depth + what.rows > executable_.info().max_context)
    return error(Code::context_overflow,
                 "a depth of {} and {} tokens more are beyond the model's context of {}: ask for less", what.depth,
                 what.rows, executable_.info().max_context);
  const int64_t needed = executable_.need(what.depth + what.rows, what.batch).state_bytes;
  if (const int64_t available = available_memory_bytes(); needed > available)
    return error(Code::out_of_memory,
                 "{} conversations of {} tokens need {} for keys and values, {} are available: ask for fewer, or less",
                 what.batch, what.depth + what.rows, bytes_text(needed), bytes_text(available));
  return {};
}

Result<BenchTiming> Bench::time(const BenchCase& what, bool profile) {
  RETURN_IF_ERROR(check_room(what));
  // A device loads graphs and packs weights when they first compute, the CPU moves its weights to huge pages: that is
  // no step's time.
  if (counts_graphs_) RETURN_IF_ERROR(what.prompt ? time_prompt(what, 1) : time_decode(what, 1));
  rest_until_done(executable_);
  const auto timed = what.prompt ? time_prompt(what, kPromptRounds) : time_decode(what, what.rows);
  RETURN_IF_ERROR(timed);
  BenchTiming t{.what = what, .seconds = median(timed->seconds), .host_share = timed->host_share};
  count(t);
  if (profile) RETURN_IF_ERROR(add_profile(t));
  return t;
}

// Bytes and operations of a second are those of steps: a step of several rows reads its weights once.
Result<BenchTiming> Bench::time_recorded(const BenchCase& what, std::span<const int32_t> recording,
                                         const ReplayDrafts& drafts) {
  const ReplayCase replay{std::max<int64_t>(what.depth, 1), what.rows, what.batch};
  RETURN_IF_ERROR(check_room({false, replay.rows + 1, replay.depth, what.batch}));
  const auto timed = time_replay(executable_, recording, replay, drafts);
  RETURN_IF_ERROR(timed);
  BenchTiming t{.what = what, .seconds = timed->seconds / static_cast<double>(std::max<int64_t>(timed->steps, 1))};
  count(t);
  const auto tokens = static_cast<double>(what.rows * what.batch);
  t.ops_per_s *= static_cast<double>(what.rows + timed->drafted - timed->accepted) / static_cast<double>(timed->steps);
  t.tokens_per_s = tokens / timed->seconds;
  t.plain_tokens_per_s = tokens / timed->plain_seconds;
  t.drafted = timed->drafted;
  t.accepted = timed->accepted;
  t.mtp_drafted = timed->mtp_drafted;
  t.mtp_accepted = timed->mtp_accepted;
  t.mtp_judged = timed->mtp_judged;
  t.mtp_right = timed->mtp_right;
  return t;
}

}  // namespace onw::cli
