// The clock by which steps are timed where their times decide something. Tests give one that their fakes move.
#pragma once

#include <chrono>
#include <functional>

namespace onw {

using SecondsClock = std::function<double()>;  // since some moment of its own

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace onw
