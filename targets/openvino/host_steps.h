// What the host does between segments, over the arena: the CPU target's steps for K, V and attention.
#pragma once

#include <memory>
#include <vector>

#include "passes/cut.h"
#include "targets/cpu/steps.h"
#include "targets/openvino/buffers.h"

namespace onw::openvino {

class HostSteps {
 public:
  // Errors: missing_tensor for sinks; unsupported for attention that the host does not have.
  static Result<HostSteps> create(const Program& program, const CutFunction& cut, const BufferPlan& buffers,
                                  const WeightSet& weights, KvFormat kv, const cpu::PlanOptions& options);

  // The steps behind segment `segment`.
  void run(size_t segment, const cpu::RunContext& context) const {
    for (const auto& step : steps_[segment]) step->run(context);
  }

 private:
  std::vector<std::vector<cpu::StepPtr>> steps_;
  std::vector<std::shared_ptr<const std::vector<float>>> sinks_;
};

}  // namespace onw::openvino
