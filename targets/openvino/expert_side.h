// Experts on the device: behind each router the host chooses them, binds them to a graph of experts and runs it. Few
// rows go through their experts together; many are sorted by expert first, each expert's rows together, in two requests
// in turn: one computes while the host fills and empties the other.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/route/route.h"
#include "passes/cut.h"
#include "targets/cpu/plan.h"
#include "targets/openvino/buffers.h"
#include "targets/openvino/compile_jobs.h"
#include "targets/openvino/expert_forms.h"
#include "targets/openvino/expert_requests.h"
#include "targets/openvino/expert_stack.h"
#include "targets/openvino/lower.h"

namespace onw::openvino {

// The segments behind which the host has a router and experts alone, and the experts in a form that graphs take at run
// time. Errors: missing_tensor.
Result<std::set<size_t>> segments_before_experts(const Program& program, const CutFunction& cut,
                                                 const WeightSet& weights);

// How many rows of a step go through a layer before any goes through the next one: all, where there are such segments
// and no state that takes a step at once; else those of the largest graph.
int64_t rows_together(const std::set<size_t>& segments, int64_t most_step_rows, int64_t largest_graph);

// The graphs of experts that a target for steps of at most `most_rows` rows runs, each once. Errors: missing_tensor.
Result<std::vector<ExpertShape>> expert_shapes(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                               int64_t most_rows);

// One of them for the device, without weights. `constants` gets its small ones.
Result<Ir> lower_experts(const ExpertShape& shape, Constants& constants, std::string_view formats);

struct ExpertSideOptions {
  std::shared_ptr<const Runtime> runtime;
  std::function<Result<CompiledModel>(const CompileJob& job, const Constants& constants)> compile;
  std::string_view formats = "openvino:CPU";  // the device's column of the table of formats
  HostMemory memory;
  int64_t max_rows = 0;   // of the buffers
  int most_requests = 2;  // at the same time, at least two
};

class ExpertSide {
 public:
  // Compiles every graph. Errors: missing_tensor, out_of_memory, those of the compiler.
  static Result<std::unique_ptr<ExpertSide>> create(const Program& program, const CutFunction& cut,
                                                    const BufferPlan& buffers, const WeightSet& weights,
                                                    const ExpertSideOptions& options);

  bool has(size_t segment) const { return layers_.contains(segment); }
  size_t layers() const { return layers_.size(); }

  // The router and experts behind `segment`, over the rows of the buffers. Errors: cancelled between two runs; internal
  // with the library's message.
  Result<void> run(size_t segment, std::byte* arena, int64_t rows, const CancelToken& cancel);

  double device_seconds() const { return requests_.seconds(); }
  const ExpertRequests::Counts& counts() const { return requests_.counts(); }
  int64_t copied_bytes() const;  // in memory of the device's
  int64_t weight_bytes() const;  // of experts that one row reads

  explicit ExpertSide(const ExpertSideOptions& options);

 private:
  struct Layer {
    cpu::Slot logits, x, y;
    int64_t number = 0, chosen = 0;
    RouteForm route;
    std::vector<float> bias;
    ExpertStack stack;
    ExpertForms forms;
  };
  // Rows that chose one expert, pairs [first, first + rows) of those sorted by expert.
  struct Part {
    int64_t expert = 0, first = 0, rows = 0;
  };
  // A batch under way, and whose rows are in its slots.
  struct Turn {
    BoundExperts* bound = nullptr;
    std::vector<Part> parts;
    std::vector<int64_t> slots;
  };

  Result<void> add(const Program& program, size_t segment, const std::vector<HostStep>& steps,
                   const BufferPlan& buffers, const WeightSet& weights);
  Result<CompiledModel> compile(const ExpertShape& shape);
  void choose(const Layer& layer, const cpu::RunContext& c);
  void sort_rows(const Layer& layer, int64_t rows);
  Result<void> run_together(const Layer& layer, const ExpertShape& form, const cpu::RunContext& c,
                            const CancelToken& cancel);
  Result<void> run_by_expert(const Layer& layer, const cpu::RunContext& c, const CancelToken& cancel);
  Result<void> run_batches(const Layer& layer, const ExpertShape& form, std::span<const Part> parts,
                           const cpu::RunContext& c, const CancelToken& cancel);
  Result<void> finish(const Layer& layer, Turn& turn, const cpu::RunContext& c);

  ExpertSideOptions options_;
  std::list<Constants> constants_;  // the graphs may still read them
  std::map<size_t, Layer> layers_;  // by the segment before them
  ExpertRequests requests_;
  std::array<Turn, 2> turns_;
  size_t next_turn_ = 0;
  // Of the rows that run: each one's experts and their weights; and both sorted by expert.
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::vector<int64_t> first_, active_;
  std::vector<int64_t> row_of_;
  std::vector<float> weight_of_;
};

}  // namespace onw::openvino
