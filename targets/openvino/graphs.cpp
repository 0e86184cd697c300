#include "targets/openvino/graphs.h"

#include "passes/decompose.h"

namespace onw::openvino {
namespace {

Result<Ir> lower_function(const Program& program, const Function& function, const WeightSet& weights,
                          Constants& constants, int64_t rows, std::string_view device) {
  const auto primitive = decompose(program, function, {.rows = rows});
  RETURN_IF_ERROR(primitive);
  return lower(*primitive, weights, constants, device);
}

}  // namespace

Result<ProgramGraphs> lower_program(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                    Constants& constants, int64_t rows, std::string_view device) {
  ProgramGraphs graphs;
  for (const Function& segment : cut.segments) {
    auto ir = lower_function(program, segment, weights, constants, rows, device);
    RETURN_IF_ERROR(ir);
    graphs.body.push_back(std::move(*ir));
  }
  const Function* head = program.function("head");
  CHECK(head != nullptr);
  auto ir = lower_function(program, *head, weights, constants, rows, device);
  RETURN_IF_ERROR(ir);
  graphs.head = std::move(*ir);
  return graphs;
}

}  // namespace onw::openvino
