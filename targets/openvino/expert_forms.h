// Which graphs of experts there are for a kind of layer, and which one computes how many rows.
#pragma once

#include <vector>

#include "targets/openvino/expert_graph.h"

namespace onw::openvino {

struct ExpertForms {
  // Of all rows together, ascending: a run has the experts that any of the rows chose bound to its slots; what exceeds
  // them is further runs.
  std::vector<ExpertShape> together;
  // Of more rows, sorted by expert: each slot has one expert and rows that chose it. Ascending; none where no step has
  // so many rows.
  std::vector<ExpertShape> batches;

  std::vector<ExpertShape> all() const;
  // The smallest that holds the rows; null where they are to be sorted by expert.
  const ExpertShape* for_rows(int64_t rows) const;
  // The smallest batch that holds the rows of one expert, else the largest.
  const ExpertShape& batch_for(int64_t rows) const;
};

// `layer` as ExpertStack::shape gives it, with its activation; each row chooses `chosen` of `experts`. 1 and 4 rows
// have as many slots as a row chooses experts, so that a slot is seldom read for nothing; 16 rows at most 32 slots.
// Batches are of 16, 32, 64 and 128 rows a slot.
ExpertForms expert_forms(const ExpertShape& layer, int64_t chosen, int64_t experts, int64_t most_rows);

}  // namespace onw::openvino
