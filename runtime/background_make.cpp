#include "runtime/background_make.h"

#include <utility>

namespace onw {

void BackgroundMake::start() {
  wait();
  status_->change([](DeviceReport& r) {
    r.state = DeviceState::making;
    r.made = r.of = 0;
  });
  thread_ = std::thread([this] { run(); });
}

void BackgroundMake::run() {
  const auto progress = [this](int done, int total) {
    status_->change([&](DeviceReport& r) {
      r.made = done;
      r.of = total;
    });
    return !cancel_->cancelled();
  };
  auto made = maker_({.progress = progress, .cancel = cancel_});
  {
    const std::lock_guard lock(mutex_);
    made_ = std::move(made);
  }
  if (!cancel_->cancelled()) status_->wake();
}

void BackgroundMake::wait() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundMake::stop() {
  cancel_->cancel();
  wait();
}

std::optional<Result<std::unique_ptr<Executable>>> BackgroundMake::take() {
  std::optional<Result<std::unique_ptr<Executable>>> made;
  {
    const std::lock_guard lock(mutex_);
    made_.swap(made);
  }
  if (made) wait();
  return made;
}

}  // namespace onw
