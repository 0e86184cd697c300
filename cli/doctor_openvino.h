// What doctor says of OpenVINO: whether and where it is, which devices it has, and whether a small graph runs there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "targets/openvino/probe.h"

namespace onw::cli {

struct OpenVinoFindings {
  std::string library;  // empty where it is not found
  openvino::Probe probe;
  std::string trouble;  // why there is nothing, with the remedy

  bool found() const { return !library.empty(); }
};

OpenVinoFindings examine_openvino();
std::vector<std::vector<std::string>> openvino_rows(const OpenVinoFindings& findings, bool with_paths);
std::vector<std::string> openvino_advice(const OpenVinoFindings& findings);
nlohmann::ordered_json openvino_json(const OpenVinoFindings& findings);

}  // namespace onw::cli
