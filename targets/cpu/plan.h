// A function of a Program, compiled for the CPU: fused steps over planned memory. A plan is made for at most `max_rows`
// rows and runs any count up to that without padding; running allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "graph/program.h"
#include "kernels/attention/attention.h"
#include "kernels/delta/delta.h"
#include "kernels/isa.h"
#include "kernels/rowops/rowops.h"
#include "passes/memory_plan.h"
#include "targets/cpu/kv_pages.h"
#include "targets/executable.h"
#include "targets/weights.h"

namespace onw::cpu {

class RecurrentPages;

// Rows of one sequence in a step: adjacent, ascending.
struct Span {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  std::vector<KvPages>* states = nullptr;            // of K and V
  std::vector<RecurrentPages>* recurrent = nullptr;  // the others
};

// What every step of a plan is given.
struct RunContext {
  std::byte* arena = nullptr;
  int64_t rows = 0;
  std::span<const Span> spans;
  ThreadPool* pool = nullptr;
  Isa isa = Isa::generic;
  const RowOps* row_ops = nullptr;
  const AttentionOps* attention = nullptr;
  const DeltaOps* delta = nullptr;
  OpObserver* observer = nullptr;
};

// A value during a run: FP32 rows with a stride (views have that of their owner), or INT8 rows.
struct Slot {
  int64_t offset = -1;  // bytes in the arena
  int64_t stride = 0;   // floats from row to row
  int64_t width = 0;    // floats of a row
  int32_t group = 0;    // of q8 values, else 0

  float* f32(const RunContext& c) const { return reinterpret_cast<float*>(c.arena + offset); }
  QuantizedRows q8(const RunContext& c) const { return place_quantized_rows(c.arena + offset, c.rows, width, group); }
};

// One step; its class knows one kernel.
class PlanStep {
 public:
  explicit PlanStep(std::string label) : label_(std::move(label)) {}
  virtual ~PlanStep() = default;
  virtual void run(const RunContext& c) = 0;
  virtual int64_t weight_bytes() const { return 0; }
  virtual int64_t weight_values() const { return 0; }
  const std::string& label() const { return label_; }

 private:
  std::string label_;
};

struct PlanOptions {
  int64_t max_rows = 512;
  Isa isa = Isa::generic;
  int threads = 1;
  int64_t max_context = 0;  // for the buffers of attention over positions
};

class Plan {
 public:
  // The weights must be in tiles (targets/cpu/tiled_weights.h). Errors: missing_tensor, unsupported.
  static Result<Plan> compile(const Program& program, const Function& function, const WeightSet& weights,
                              const PlanOptions& options);

  // Runs all steps; false where `cancel` said so, between two of them.
  bool run(const RunContext& context, const CancelToken& cancel) const;

  // Where the caller writes inputs and reads outputs.
  const Slot& input(std::string_view name) const;
  bool has_input(std::string_view name) const;
  const Slot& output(std::string_view name) const;
  int64_t arena_bytes() const { return memory_.arena_bytes; }
  int64_t weight_bytes() const;  // read by one row
  // Steps and memory map, for `inspect --plan`.
  std::string print() const;
  // The label of the first step whose result is not finite, in a run that checks; empty where all are.
  std::string first_not_finite(const RunContext& context) const;

 private:
  friend class PlanCompiler;
  void show(size_t step, double seconds, const RunContext& context) const;

  Function function_;
  MemoryPlan memory_;
  std::vector<std::shared_ptr<const std::vector<float>>>
      vectors_;  // norms and biases that do not lie in the file as FP32
  std::vector<std::unique_ptr<PlanStep>> steps_;
  std::vector<Slot> results_;  // by step, for first_not_finite and observers
  std::vector<Op> ops_;        // by step
  std::vector<std::pair<std::string, Slot>> inputs_, outputs_;
};

}  // namespace onw::cpu
