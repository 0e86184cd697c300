// A function cut where the host must act: before attention over a cache that grows, which no graph of fixed shapes can
// hold; where convolutions and the delta rule meet their states, unless graphs have fixed rows; and after a router,
// because no graph can choose weights.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// What the host does between two segments, in order. Operands and results are values by name: an output of an earlier
// segment, an input of the function, or the result of an earlier host step.
struct HostStep {
  Node node;                          // its inputs are not to be used
  std::vector<std::string> operands;  // weights (attention's sinks, experts) by their name
  std::string result;                 // empty for kv_write
  std::vector<Type> operand_types = {};
  // Whether a segment, a later list of steps or the function's caller reads the result; else steps of the same list do.
  bool crosses = false;
};

// Of the cache of K and V; the others are the CPU's own ops (targets/openvino/host_plans.h).
bool is_of_cache(const HostStep& step);

struct CutFunction {
  std::vector<Function> segments;           // coarse, without effects; values that cross are inputs and outputs by name
  std::vector<std::vector<HostStep>> host;  // host[i] follows segments[i]; one shorter than segments
};

// Values that cross a cut are named as their node ("L07/attn_add"), those of the function keep their names. Every
// segment takes from the function's inputs what it uses. A node that needs nothing of the host's since the last segment
// stands in that one, wherever it is written. What lies between a convolution and the delta rule without a product (a
// call of a graph costs more) is steps of the host too. Errors: unsupported for an effect that has no host step, and
// for host steps that no segment stands before or behind.
Result<CutFunction> cut_at_host_steps(const Function& function);

// The same where graphs have fixed rows: convolutions and the delta rule stay inside them (passes/decompose_states.h),
// with small states scaled (passes/delta_scales.h).
Result<CutFunction> cut_for_fixed_rows(const Function& function);

// The same in pieces of at least `attentions` attentions (1 or more), effects inside them, so without host steps: cut
// where a single value crosses, but for the function's inputs. What has no such place is one piece.
CutFunction cut_in_pieces(const Function& function, int attentions);

}  // namespace onw
