// Experts as a graph without weights: what a router chose is bound to its slots at run time, so one graph serves every
// layer of the same shape. A weight is codes of 4 bits, one scale an output: the only form that an NPU reads at full
// speed from run-time inputs, and only where the scale stands behind the product.
#pragma once

#include <compare>
#include <string>

#include "graph/program.h"

namespace onw::openvino {

struct ExpertShape {
  int64_t rows = 1;
  int64_t slots = 1;
  // Each slot has rows of its own; else all slots compute the same rows, and their results are summed.
  bool grouped = false;
  int64_t hidden = 0, inner = 0, outputs = 0;
  bool biases = false;
  std::string activation = "silu";
  double limit = 0, alpha = 0;  // of activation swiglu_clamped

  int64_t all_rows() const { return grouped ? rows * slots : rows; }
  int64_t scales() const { return 2 * inner + outputs; }  // of one expert: gate's, up's, down's
  // A row does not choose all slots: what those would give it is not computed from it.
  bool chooses() const { return !grouped && rows > 1; }
  auto operator<=>(const ExpertShape&) const = default;
};

// Inputs: "x" f32[all_rows, hidden]; for slot s "gate_up.<s>" i4[2 * inner, hidden] and "down.<s>" i4[outputs, inner];
// "scales" f16[slots, scales], and "biases" f32[slots, scales] where there are any; unless it is grouped "weight"
// f32[rows, slots] of the router, 0 where a row does not choose a slot, and where it chooses "chosen", 1 or 0.
// Output: "y" f32[all_rows, outputs], the sum of weight * expert over the slots; of a grouped one each slot's rows,
// unweighted.
Function expert_graph(const ExpertShape& shape);

// The name of its compiled graph: "experts.8", "experts.16.grouped".
std::string segment_name(const ExpertShape& shape);

}  // namespace onw::openvino
