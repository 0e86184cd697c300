// Whole models on OpenVINO, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "targets/openvino/openvino.h"
#include "targets/openvino/testing.h"
#include "tests/random_model.h"

namespace onw::testing {

// By two threads and the machine's best instruction set; null after a failure.
inline std::unique_ptr<Executable> openvino_of(const RandomModel& m, OpenVinoOptions options) {
  options.runtime = openvino_runtime();
  options.threads = 2;
  options.isa = available_isas(cpu_features()).back();
  auto target = make_openvino(m.program, m.weights, options);
  EXPECT_TRUE(target) << target.error().message;
  return target ? std::move(*target) : nullptr;
}

// Why tests are skipped; empty where they are not.
inline std::string no_openvino() { return openvino_runtime() == nullptr ? kNoOpenVino : ""; }

}  // namespace onw::testing
