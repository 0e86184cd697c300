// Scratch that steps share, on a line of the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/checked.h"
#include "base/result.h"

namespace onw::cpu {

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

inline AlignedBytes aligned_bytes(int64_t n) {
  auto* p =
      static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(round_up(std::max<int64_t>(n, 64), 64))));
  CHECK(p != nullptr);
  return AlignedBytes(p);
}

}  // namespace onw::cpu
