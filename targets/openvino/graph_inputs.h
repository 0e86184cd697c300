// What the host writes for a body's rows before the first graph runs: embeddings, tables by token, rotary tables.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "graph/program.h"
#include "targets/openvino/buffers.h"
#include "targets/row_tables.h"
#include "targets/weights.h"

namespace onw::openvino {

class GraphInputs {
 public:
  // Tables stay where the weights are. Errors: missing_tensor.
  static Result<GraphInputs> create(const Program& program, const WeightSet& weights);

  // Rows [0, rows.size()) of the context's arena.
  void write(std::span<const Row> rows, const BufferPlan& buffers, const cpu::RunContext& c, ThreadPool& pool) const;

  // The rows behind the context's last one are the last one again: what they give is not looked at, but must be
  // numbers.
  void fill_up(const BufferPlan& buffers, const cpu::RunContext& c, int64_t all_rows) const;

 private:
  std::vector<std::string> names_;
  WeightView embedding_;
  float embedding_scale_ = 1;
  std::vector<RowTable> lookups_;
  std::vector<RopeTable> rope_tables_;
  std::vector<std::vector<float>> inv_freq_;
};

// The same for one value, where somebody reads it.
void fill_up_rows(const BufferPlan& buffers, const std::string& name, const cpu::RunContext& c, int64_t all_rows);

}  // namespace onw::openvino
