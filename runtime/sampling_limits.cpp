#include "runtime/sampling_limits.h"

#include <fmt/format.h>

#include <cmath>

namespace onw {
namespace {

std::string number_text(double x) { return x == std::floor(x) ? fmt::format("{:.0f}", x) : fmt::format("{}", x); }

}  // namespace

std::string range_text(const Range& range) {
  if (range.min == kAboveZero) return fmt::format("above 0, at most {}", number_text(range.max));
  return fmt::format("from {} to {}", number_text(range.min), number_text(range.max));
}

}  // namespace onw
