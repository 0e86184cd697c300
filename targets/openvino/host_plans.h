// What the host computes between segments beside the cache of K and V, with the CPU target's kernels and states:
// convolutions, the delta rule, routers and experts. Each list of such steps is a function of its own and a plan of the
// CPU's, so all that the CPU computes is there, to the same arithmetic.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "passes/cut.h"
#include "targets/cpu/aligned_bytes.h"
#include "targets/cpu/plan.h"
#include "targets/openvino/buffers.h"
#include "targets/weights.h"

namespace onw::openvino {

struct HostPlanOptions {
  Isa isa = Isa::generic;
  int threads = 1;
  int64_t max_rows = 0;             // of the buffers
  std::set<size_t> elsewhere = {};  // segments behind which somebody else acts
  // Experts over FP32 activations: their weights are then held as FP32 too. Else quantised as the CPU quantises.
  bool exact = false;
};

class HostPlans {
 public:
  // Plans for the lists of host steps that are not of the cache. Errors: unsupported for a list of both kinds;
  // missing_tensor, those of cpu::Plan.
  static Result<std::unique_ptr<HostPlans>> create(const Program& program, const CutFunction& cut,
                                                   const BufferPlan& buffers, const WeightSet& weights,
                                                   const HostPlanOptions& options);

  bool has(size_t segment) const { return segment < lists_.size() && lists_[segment] != nullptr; }

  // The list behind `segment` over the context's rows and spans; its arena is that of the buffers.
  void run(size_t segment, const cpu::RunContext& context);

  int64_t work_bytes() const { return arena_bytes_; }
  int64_t exact_bytes() const;                            // of weights held as FP32
  int64_t weight_bytes() const { return weight_bytes_; }  // of experts that one row reads

 private:
  struct Copy {
    cpu::Slot from, to;
  };
  struct List {
    cpu::Plan plan;
    std::vector<Copy> in, out;
  };

  Result<void> hold_exact(Program& program);
  Result<void> add(const Program& program, size_t function, size_t segment, const BufferPlan& buffers,
                   const HostPlanOptions& options);

  WeightSet weights_;
  std::vector<std::shared_ptr<const std::vector<float>>> exact_;
  std::vector<std::unique_ptr<List>> lists_;  // by segment; null: the cache's, or nothing
  cpu::AlignedBytes arena_;
  int64_t arena_bytes_ = 0, weight_bytes_ = 0;
};

}  // namespace onw::openvino
