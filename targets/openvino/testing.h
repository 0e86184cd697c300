// OpenVINO for tests: one library for a test program, and a reason to skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "targets/openvino/find.h"
#include "targets/openvino/runtime.h"

namespace onw::testing {

// The one library, until the last test has run. It must be gone before main ends: freeing it, OpenVINO's C library
// writes to its last message, a thread_local, which is freed before statics are.
class SharedOpenVino final : public ::testing::Environment {
 public:
  // GoogleTest owns it.
  static SharedOpenVino& instance() {
    static auto* const one =
        static_cast<SharedOpenVino*>(::testing::AddGlobalTestEnvironment(std::make_unique<SharedOpenVino>().release()));
    return *one;
  }

  // Null where this machine has no OpenVINO. One that is there and does not load is a failure.
  std::shared_ptr<const openvino::Runtime> runtime() {
    if (!std::exchange(looked_, true)) look();
    return runtime_;
  }

  void TearDown() override {
    EXPECT_LE(runtime_.use_count(), 1) << "a test still holds OpenVINO, which would be freed with statics";
    runtime_ = nullptr;
  }

 private:
  void look() {
    const auto library = openvino::find_library(openvino::search_places());
    if (!library) return;
    auto loaded = openvino::Runtime::load(*library);
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (loaded) runtime_ = *loaded;
  }

  bool looked_ = false;
  std::shared_ptr<const openvino::Runtime> runtime_;
};

// Added before the tests begin: only then is TearDown called.
[[maybe_unused]] inline SharedOpenVino& kSharedOpenVino = SharedOpenVino::instance();

inline std::shared_ptr<const openvino::Runtime> openvino_runtime() { return SharedOpenVino::instance().runtime(); }

inline constexpr const char* kNoOpenVino =
    "OpenVINO is not on this machine: run ./test.sh, which installs it into build/venv, or set ONW_OPENVINO_DIR";

}  // namespace onw::testing
