// What each op computes, one op after another, no fusion: the judge of the other targets.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "graph/program.h"
#include "kernels/isa.h"
#include "kernels/matmul/matmul.h"
#include "kernels/scalar.h"
#include "targets/executable.h"
#include "targets/reference/tensor.h"
#include "targets/weights.h"

namespace onw::reference {

class KvCache;
class RecurrentHistory;

// Everything a node may need beside its inputs.
struct Context {
  const Program& program;
  const WeightSet& weights;
  const Step* step = nullptr;  // for effects
  int64_t rows = 0;
  Isa isa = Isa::generic;  // generic: the judge's own products; else the kernels' (equal bits, for long runs)
  int threads = 1;
  OpObserver* observer = nullptr;
  bool npu = false;  // the NPU's arithmetic (npu.h); functions of primitives only
  std::function<KvCache&(int sequence, int state)> cache;
  std::function<RecurrentHistory&(int sequence, int state)> recurrent;
};

// `inputs` are those of the node, in order; a null one is a weight, found by its name in `names`.
struct Operands {
  std::span<const Tensor* const> values;
  std::span<const std::string_view> names;
};

// Errors: unsupported for ops of later families, missing_tensor for weights.
Result<Tensor> evaluate(const Node& node, const Operands& in, const Context& context);

// One weight's outputs for the rows of x, at `column` of out.y.
void product(const Tensor& x, const WeightView& w, int64_t column, const Context& context, MatmulOutput out);

// Rows [rows, n] as codes in groups; and what `gated` does, by its attributes.
Tensor quantise(const Tensor& x, int64_t group);
scalar::Gate gate_of(const Node& node);

// A plain or quantised weight as FP32, [shape]; a merged one part after part.
Result<std::vector<float>> load_weight(const Program& program, const WeightSet& weights, std::string_view name);

}  // namespace onw::reference
