// An Executable of two: a standby that answers at once (the CPU), and a device that is made meanwhile (the NPU). When
// the device is ready, each sequence moves over before its next step, by its canonical state; when the device errs or
// is lost, sequences move back. So an answer goes on whatever the device does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/device_status.h"
#include "runtime/seconds_clock.h"
#include "runtime/speed_watch.h"
#include "targets/executable.h"
#include "targets/rest.h"

namespace onw {

// What the maker of a device is given.
struct Making {
  // Graphs done of all. False: nobody wants the device any more.
  std::function<bool(int done, int total)> progress;
  std::shared_ptr<CancelToken> cancel;  // the same, for who waits in between
};

// Makes the device, on a thread of its own.
using DeviceMaker = std::function<Result<std::unique_ptr<Executable>>(const Making& making)>;

struct HandOverOptions {
  std::string device = "NPU";  // in messages
  // The user named the device: where it cannot be had, steps fail and say why. Else the standby goes on without it.
  bool insisted = false;
  std::string asked_by = {};  // then: what named it; empty: the flag --device
  // Whether the device computes what the standby does, before its first step; on the engine's thread. An error is the
  // reason to give the device up, but for cancelled: then it is asked again.
  std::function<Result<void>(Executable& device, Executable& standby, const CancelToken& cancel)> check = {};
  std::shared_ptr<DeviceStatus> status = {};  // none: nobody looks
  KeptSpeeds speeds = {};                     // of the device that was made, once `check` has passed
  // For tests: whether the device, if ready, computes the next step of a sequence of this length.
  std::function<bool(int64_t length)> prefers_device = {};
  SecondsClock seconds = steady_seconds;
};

class HandOver : public Executable, public Rests {
 public:
  // Until the device is made or has failed. It is taken over with DeviceStatus::attend, which the engine's thread is
  // woken for, or with the next step.
  virtual void wait_until_made() = 0;
  virtual DeviceReport report() const = 0;
};

// The device must take the context of the standby, and go back as far, else it is not taken; steps that are too long
// for it are cut. info() is the standby's, but that at most 16 rows may be kept in part. Where K and V have other
// formats on both sides, they are converted when a sequence moves.
std::unique_ptr<HandOver> make_hand_over(std::unique_ptr<Executable> standby, DeviceMaker maker,
                                         HandOverOptions options);

}  // namespace onw
