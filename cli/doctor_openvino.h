// What doctor says of the NPU and of OpenVINO: what stands in the NPU's way; whether and where OpenVINO is, which
// devices it has, and whether a small graph runs there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "targets/openvino/npu_machine.h"
#include "targets/openvino/probe.h"

namespace onw::cli {

struct OpenVinoFindings {
  std::string library;  // empty where it is not found
  openvino::Probe probe;
  std::string trouble;     // why there is nothing, with the remedy
  bool asked_for = false;  // by ONW_OPENVINO_DIR
  openvino::NpuMachine npu;

  bool found() const { return !library.empty(); }
};

OpenVinoFindings examine_openvino();
std::vector<std::vector<std::string>> openvino_rows(const OpenVinoFindings& findings, bool with_paths);
std::vector<std::string> openvino_advice(const OpenVinoFindings& findings, bool with_paths);
nlohmann::ordered_json openvino_json(const OpenVinoFindings& findings);

}  // namespace onw::cli
