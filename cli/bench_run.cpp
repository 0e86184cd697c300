#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace onw::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPromptRounds = 3;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Conversations of equal length that move together.
class Batch {
 public:
  Batch(Executable& executable, const Draw& draw) : executable_(executable), draw_(draw) {}

  Result<void> open(int count, int64_t tokens) {
    for (int i = 0; i < count; ++i) {
      auto sequence = executable_.new_sequence();
      RETURN_IF_ERROR(sequence);
      RETURN_IF_ERROR((*sequence)->reserve(tokens));
      pointers_.push_back(sequence->get());
      sequences_.push_back(std::move(*sequence));
    }
    return {};
  }

  // `tokens` more for each, in steps as large as the target takes; logits of the last row alone.
  Result<void> feed(int64_t tokens) {
    const int64_t most =
        std::max<int64_t>(executable_.info().max_step_rows / static_cast<int64_t>(pointers_.size()), 1);
    while (tokens > 0) {
      const int64_t count = std::min(tokens, most);
      RETURN_IF_ERROR(step(count, count == tokens));
      tokens -= count;
    }
    return {};
  }

  Result<void> step(int64_t rows_each, bool last_logits) {
    rows_.clear();
    for (size_t s = 0; s < pointers_.size(); ++s)
      for (int64_t i = 0; i < rows_each; ++i)
        rows_.push_back(text_row(static_cast<int>(s), pointers_[s]->length() + i, draw_(drawn_++),
                                 last_logits && i + 1 == rows_each));
    const auto outputs = executable_.run({pointers_, rows_}, CancelToken());
    RETURN_IF_ERROR(outputs);
    for (Sequence* sequence : pointers_) sequence->commit(static_cast<int>(rows_each));
    return {};
  }

 private:
  Executable& executable_;
  const Draw& draw_;
  int64_t drawn_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> pointers_;
  std::vector<Row> rows_;
};

// Seconds of each round of a prompt.
Result<std::vector<double>> time_prompt(Executable& executable, const BenchCase& what, const Draw& draw) {
  std::vector<double> seconds;
  for (int round = 0; round < kPromptRounds; ++round) {
    Batch batch(executable, draw);
    RETURN_IF_ERROR(batch.open(what.batch, what.depth + what.rows));
    RETURN_IF_ERROR(batch.feed(what.depth));
    const auto start = Clock::now();
    RETURN_IF_ERROR(batch.feed(what.rows));
    seconds.push_back(since(start));
  }
  return seconds;
}

// Seconds of each step.
Result<std::vector<double>> time_decode(Executable& executable, const BenchCase& what, const Draw& draw) {
  std::vector<double> seconds;
  Batch batch(executable, draw);
  RETURN_IF_ERROR(batch.open(what.batch, what.depth + what.rows));
  RETURN_IF_ERROR(batch.feed(what.depth));
  for (int64_t i = 0; i < what.rows; ++i) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(batch.step(1, true));
    seconds.push_back(since(start));
  }
  return seconds;
}

}  // namespace

ModelCost model_cost(const Program& program, std::span<const StoredWeight> weights) {
  ModelCost cost;
  bool has_head = false;
  for (const auto& decl : program.weights) has_head = has_head || decl.role == WeightRole::head;
  for (const auto& weight : weights) {
    const WeightDecl* decl = program.weight(weight.name);
    if (decl == nullptr) continue;
    const bool looked_up_only = decl->role == WeightRole::embedding && has_head;
    if (looked_up_only) continue;
    cost.step_bytes += weight.bytes().total();
    if (decl->role == WeightRole::vector) continue;
    const int64_t ops = 2 * weight.outputs() * weight.inputs();
    (decl->role == WeightRole::matrix ? cost.body_ops : cost.head_ops) += ops;
  }
  return cost;
}

Result<BenchTiming> time_case(Executable& executable, const ModelCost& cost, const BenchCase& what, const Draw& draw) {
  if (what.depth + what.rows > executable.info().max_context)
    return error(Code::context_overflow,
                 "a depth of {} and {} tokens more are beyond the model's context of {}: ask for less", what.depth,
                 what.rows, executable.info().max_context);
  const auto seconds = what.prompt ? time_prompt(executable, what, draw) : time_decode(executable, what, draw);
  RETURN_IF_ERROR(seconds);
  BenchTiming t{what, median(*seconds)};
  const int64_t tokens = what.batch * (what.prompt ? what.rows : 1);
  const int64_t steps =
      what.prompt
          ? std::max<int64_t>(1, (tokens + executable.info().max_step_rows - 1) / executable.info().max_step_rows)
          : 1;
  const int64_t mean_depth = what.depth + what.rows / 2;
  const auto cache_bytes = executable.need(mean_depth, what.batch).state_bytes;
  const auto bytes = static_cast<double>(steps * (cost.step_bytes + cache_bytes));
  const auto ops = static_cast<double>(tokens) * static_cast<double>(cost.body_ops) +
                   what.batch * static_cast<double>(cost.head_ops);
  t.tokens_per_s = static_cast<double>(tokens) / t.seconds;
  t.bytes_per_s = bytes / t.seconds;
  t.ops_per_s = ops / t.seconds;
  return t;
}

}  // namespace onw::cli
