// The experts of a layer from their published tensors into records, expert by expert.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/write_weight.h"
#include "store/expert_records.h"

namespace onw {

// One weight of every expert: "layers.3.experts.gate".
struct ExpertPart {
  const WeightDecl* weight = nullptr;  // the stack
  WeightDecl one;                      // of a single expert
  WeightSource from;                   // fold and first row in each tensor
  std::vector<SourceTensor> tensors;   // by expert: a tensor, or its slice of the published stack
  FormatChoice choice;
  Alteration altered = {};  // of each expert's rows
};

struct ExpertJob {
  ExpertRecords records;
  std::vector<ExpertPart> parts;
};

// The experts of the Program, a job a layer. Errors: missing_tensor naming the expert; bad_format where shapes, counts
// or types of the experts do not agree with config.json or with each other.
Result<std::vector<ExpertJob>> plan_experts(const Program& program, const ModelSource& source,
                                            const FormatRequest& request);

// Appends the records as the writer's next unit. Memory: a record and some 12 MB a thread. `after_record` gets the
// bytes written; false cancels. Errors: numerics, no_space, io, cancelled.
Result<std::vector<TensorReport>> write_experts(const ExpertJob& job, WeightFileWriter& out,
                                                const std::function<bool(int64_t bytes)>& after_record);

}  // namespace onw
