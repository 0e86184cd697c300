// The thread that makes a device, and what came of it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/hand_over.h"

namespace onw {

class BackgroundMake {
 public:
  BackgroundMake(DeviceMaker maker, std::shared_ptr<DeviceStatus> status)
      : maker_(std::move(maker)), status_(std::move(status)) {}
  ~BackgroundMake() { stop(); }
  BackgroundMake(const BackgroundMake&) = delete;
  BackgroundMake& operator=(const BackgroundMake&) = delete;

  void start();
  void wait();  // until it has ended, one way or the other

  // What was made, or why not; once. None while it is under way, or where it was never started.
  std::optional<Result<std::unique_ptr<Executable>>> take();

 private:
  void run();
  void stop();

  DeviceMaker maker_;
  std::shared_ptr<DeviceStatus> status_;
  std::shared_ptr<CancelToken> cancel_ = std::make_shared<CancelToken>();
  std::thread thread_;
  std::mutex mutex_;
  std::optional<Result<std::unique_ptr<Executable>>> made_;
};

}  // namespace onw
