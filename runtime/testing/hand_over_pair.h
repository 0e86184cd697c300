// Hand-overs for tests: of two fakes, and with a device that is there before the first step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "runtime/hand_over.h"
#include "runtime/testing/fake_executable.h"

namespace onw::testing {

inline DeviceMaker makes(std::function<std::unique_ptr<Executable>()> make) {
  return [make = std::move(make)](const Making&) -> Result<std::unique_ptr<Executable>> { return make(); };
}

// One whose device takes every other sequence and step, more or less: moves at every point.
inline std::unique_ptr<Executable> restless(const std::function<std::unique_ptr<Executable>()>& standby,
                                            const std::function<std::unique_ptr<Executable>()>& device) {
  const auto prefers = [state = uint32_t{1}](int64_t) mutable {
    state = state * 1664525U + 1013904223U;
    return (state >> 24) % 2 == 0;
  };
  auto pair = make_hand_over(standby(), makes(device), {.prefers_device = prefers});
  pair->wait_until_made();
  return pair;
}

}  // namespace onw::testing
