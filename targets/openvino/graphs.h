// A Program's functions as OpenVINO graphs: segments of the body, and the head, for one number of rows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "graph/kv_format.h"
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

struct WriteOptions {
  int64_t rows = 1;
  KvFormat kv = KvFormat::f16;
  std::string_view device = "openvino:CPU";
};

// The same graphs as files for tools that read them (Netron, benchmark_app), each with a compact file of its own
// constants: FOLDER/body.0.xml and body.0.bin, ..., head.xml and head.bin; and those of attention over each length of
// chunk that the model's context has, attention.0.1024.xml, ..., and those of experts that such a step runs where the
// device takes experts at run time, experts.8.1.0.xml (8 experts, one row), ... Returns their names, without ending.
// Errors: those of lower_program; io, no_space.
Result<std::vector<std::string>> write_graphs(const Program& program, const WeightSet& weights,
                                              const WriteOptions& options, const std::filesystem::path& folder);

}  // namespace onw::openvino
