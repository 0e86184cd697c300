// Where a hand-over to a device stands: the engine's thread and the one that makes the device write, any thread reads.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

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
    if (notice_) notice_(text);
  }

 private:
  mutable std::mutex mutex_;
  DeviceReport report_;
  Notice notice_;
};

// For people, beside an answer: "on the NPU", "on the CPU while the NPU is made ready: 3 of 31 graphs"; empty without a
// hand-over.
std::string describe(const DeviceReport& report);

}  // namespace onw
