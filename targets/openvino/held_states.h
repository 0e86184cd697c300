// The convolution and delta states of one sequence where graphs read and write them. They can always be made again from
// its pages (targets/cpu/recurrent_pages.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace onw::openvino {

// A state where it lies, and what keeps the memory.
struct HeldState {
  std::shared_ptr<std::byte> memory = nullptr;
  std::byte* at = nullptr;
};

// What a step left.
struct LeftStates {
  int64_t first = -1, rows = 0;                         // its rows were [first, first + rows); -1: there was none
  int64_t block_rows = 0;                               // of the graph that ran
  int64_t kept = 0;                                     // of its rows the sequence still has
  std::vector<std::shared_ptr<std::byte>> memory = {};  // by state, all that its graph wrote
};

struct HeldStates {
  int64_t length = -1;  // tokens that `now` stands behind; -1: none
  std::vector<HeldState> now;
  LeftStates left, pending;  // of the last step, and of one that runs

  // The step has run.
  void settle() {
    if (pending.first >= 0) left = std::exchange(pending, {});
  }
  // The sequence is one of its first n tokens from here on.
  void cut(int64_t n) {
    pending = {};
    if (length > n) length = -1;
    left.kept = std::min(left.kept, n - left.first);
    if (left.kept <= 0) left = {};
  }
};

}  // namespace onw::openvino
