#include "cli/end_soon.h"

#include <chrono>
#include <cstdio>

#include "base/interrupt.h"
#include "cli/commands.h"

namespace onw::cli {

static constexpr auto kWait = std::chrono::milliseconds(1500);

void EndSoon::begin(const Result<void>& result) {
  thread_ = std::thread([this, result] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kWait, [this] { return ended_; })) return;
    const int code = result ? 0 : complain(result.error());
    std::fflush(stdout);
    exit_now(code);
  });
}

EndSoon::~EndSoon() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace onw::cli
