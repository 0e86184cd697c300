// A Program's functions as OpenVINO graphs: segments of the body, and the head, for one number of rows.
#pragma once

#include <string>
#include <vector>

#include "passes/cut.h"
#include "targets/openvino/lower.h"

namespace onw::openvino {

struct ProgramGraphs {
  std::vector<Ir> body;  // as cut.segments
  Ir head;
};

// `rows` may be kRows: graphs of any number of rows. Errors: those of decompose and lower.
Result<ProgramGraphs> lower_program(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                    Constants& constants, int64_t rows, std::string_view device);

}  // namespace onw::openvino
