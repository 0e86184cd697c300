// The end of a command within a moment, whatever a device's driver is busy with: while it makes a graph for us, no
// thread of ours can be joined.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace onw::cli {

// Make it before what may take long to go. From begin() on the process has a second and a half to end by itself; then
// it is ended, with what `result` says.
class EndSoon {
 public:
  EndSoon() = default;
  ~EndSoon();
  EndSoon(const EndSoon&) = delete;
  EndSoon& operator=(const EndSoon&) = delete;

  void begin(const Result<void>& result);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace onw::cli
