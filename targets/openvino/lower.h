// A graph of primitives as OpenVINO IR. Weights keep their codes: they are named by offset, in the forms that the
// plugins compute with as they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/program.h"
#include "targets/openvino/constants.h"
#include "targets/weights.h"

namespace onw::openvino {

struct IrPort {
  std::string name;
  Type type;
};

struct Ir {
  std::string xml;
  std::vector<IrPort> inputs, outputs;
};

// `device` is a column of the table of formats (store/runs_on.h): "openvino:CPU", "3720", ... For an NPU the graph is
// rewritten first (passes/legalize_npu.h), and must be of fixed shapes. A weight must lie in rows. Errors: unsupported
// for a format or a shape that the device refuses (the message names what helps) or an op without an OpenVINO form;
// missing_tensor; those of Constants.
Result<Ir> lower(const Function& primitive, const WeightSet& weights, Constants& constants, std::string_view device);

}  // namespace onw::openvino
