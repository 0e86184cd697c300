// A function cut where the host must act: before attention over a cache that grows, which no graph of fixed shapes can
// hold.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// What the host does between two segments, in order. Operands and results are values by name: an output of an earlier
// segment, an input of the function, or the result of an earlier host step.
struct HostStep {
  Node node;                          // kv_write or attention; its inputs are not to be used
  std::vector<std::string> operands;  // a weight (attention's sinks) by its name
  std::string result;                 // empty for kv_write
};

struct CutFunction {
  std::vector<Function> segments;           // coarse, without effects; values that cross are inputs and outputs by name
  std::vector<std::vector<HostStep>> host;  // host[i] follows segments[i]; one shorter than segments
};

// Values that cross a cut are named as their node ("L07/attn_add"), those of the function keep their names. Every
// segment takes from the function's inputs what it uses. Errors: unsupported for an effect that has no host step, and
// for two host steps that nothing but the host's results lies between.
Result<CutFunction> cut_at_host_steps(const Function& function);

// The same in pieces of at least `attentions` attentions (1 or more), effects inside them, so without host steps: cut
// where a single value crosses, but for the function's inputs. What has no such place is one piece.
CutFunction cut_in_pieces(const Function& function, int attentions);

}  // namespace onw
