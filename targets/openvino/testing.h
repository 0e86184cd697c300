// OpenVINO for tests: one library for a test program, and a reason to skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "targets/openvino/find.h"
#include "targets/openvino/runtime.h"

namespace onw::testing {

// Null where this machine has no OpenVINO. One that is there and does not load is a failure.
inline std::shared_ptr<const openvino::Runtime> openvino_runtime() {
  static const auto runtime = []() -> std::shared_ptr<const openvino::Runtime> {
    const auto library = openvino::find_library(openvino::search_places());
    if (!library) return nullptr;
    auto loaded = openvino::Runtime::load(*library);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? *loaded : nullptr;
  }();
  return runtime;
}

inline constexpr const char* kNoOpenVino =
    "OpenVINO is not on this machine: run ./test.sh, which installs it into build/venv, or set ONW_OPENVINO_DIR";

}  // namespace onw::testing
