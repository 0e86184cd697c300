// Who watches a step op by op: what measures (bench --profile) and what compares (eval's worst layers).
#pragma once

#include <cstdint>
#include <string_view>

namespace onw {

// The kind of an op that a device computes as a graph of its own, while the host waits.
inline constexpr std::string_view kGraphOp = "graph";

struct SeenOp {
  std::string_view label;  // "L07/q_proj"
  std::string_view kind;   // the op's name: "linear"
  double seconds = 0;
  int64_t weight_bytes = 0;  // read by the op, once
  int64_t weight_ops = 0;    // of the products with weights; a multiplication and an addition are two
  // The result, valid during the call: row r at values + r * stride. Null where it is not FP32, or there is none.
  const float* values = nullptr;
  int64_t rows = 0, width = 0, stride = 0;
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // After each op, in the order of the graph, on the thread that runs the step.
  virtual void seen(const SeenOp& op) = 0;
};

}  // namespace onw
