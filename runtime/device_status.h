// Where a hand-over to a device stands: the engine's thread and the one that makes the device write, any thread reads.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "targets/executable.h"

namespace onw {

enum class DeviceState : uint8_t { making, ready, given_up };

// Since the start.
struct DeviceReport {
  std::string device;  // "NPU"; empty: there is no hand-over
  DeviceState state = DeviceState::making;
  int made = 0, of = 0;       // graphs, while they are made; 0 of 0: not known yet
  std::string why;            // it was given up
  bool insisted = false;      // on the device: where it is given up, no answer is begun
  int64_t device_steps = 0;   // computed by the device
  int64_t standby_steps = 0;  // computed by the standby
  int64_t moves = 0;          // of a sequence from one to the other
  int64_t wrong_steps = 0;    // of the device whose numbers could not be, computed again by the standby
  int64_t refused_steps = 0;  // that the device had no memory for, computed by the standby
  int64_t losses = 0;         // of the device
  int64_t rest_steps = 0;     // of the standby's, while a device that is ready loads graphs
  bool begun_making = false;  // of a difference: the device was not ready yet when it began
  int64_t fused_tokens = 0;   // in a conversation, up to which it has graphs with attention inside
};

// Whether every request fails, because the device was asked for and cannot be had.
inline bool answers_nothing(const DeviceReport& r) { return r.insisted && r.state == DeviceState::given_up; }

// "making", "ready", "given up"
const char* name(DeviceState state);

// Tells people what they should know: one sentence or two, without an end of line. From any thread; must return soon.
using Notice = std::function<void(const std::string& text)>;

class DeviceStatus {
 public:
  explicit DeviceStatus(Notice notice = {}) : notice_(std::move(notice)) {}

  DeviceReport read() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }
  template <class Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change(report_);
  }
  void tell(const std::string& text) const {
    const std::lock_guard lock(telling_);
    if (notice_) notice_(text);
  }
  // That it is ready, and then what was to be told of a device that answers.
  void tell_ready(const std::string& text) {
    change([](DeviceReport& r) { r.state = DeviceState::ready; });
    const std::lock_guard lock(telling_);
    told_ready_ = true;
    if (notice_) notice_(text);
    for (const std::string& later : std::exchange(for_ready_, {}))
      if (notice_) notice_(later);
  }
  // Of a device that answers: not before people know that it does, and never where it does not come to that.
  void tell_when_ready(const std::string& text) {
    const std::lock_guard lock(telling_);
    if (!told_ready_) return for_ready_.push_back(text);
    if (notice_) notice_(text);
  }

  // The engine sets what wakes its thread, which then attends; the hand-over what it does then.
  void on_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void wake() const {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      wake = wake_;
    }
    if (wake) wake();
  }
  void on_attend(std::function<void(const CancelToken& cancel)> attend) { attend_ = std::move(attend); }
  // On the engine's thread alone, between steps: takes over what was made meanwhile, or tells why there is nothing.
  void attend(const CancelToken& cancel) const {
    if (attend_) attend_(cancel);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::mutex telling_;  // one notice after the other, in this order
  bool told_ready_ = false;
  std::vector<std::string> for_ready_;
  DeviceReport report_;
  Notice notice_;
  std::function<void()> wake_;
  std::function<void(const CancelToken& cancel)> attend_;
};

// What happened between two reports: counters are differences, the state is the later one's.
DeviceReport since(const DeviceReport& before, const DeviceReport& now);

// For people, beside an answer: what computed it and why, by the counters of `since`: "on the NPU", "on the CPU while
// the NPU's graphs are compiled: 3 of 31", "on the CPU while the NPU's graphs are loaded", "12 steps on the CPU, 30 on
// the NPU"; empty without a hand-over.
std::string describe(const DeviceReport& answer);

}  // namespace onw
