#include "runtime/device_status.h"

#include <fmt/format.h>

namespace onw {

const char* name(DeviceState state) {
  switch (state) {
    case DeviceState::making:
      return "making";
    case DeviceState::ready:
      return "ready";
    case DeviceState::given_up:
      return "given up";
  }
  return "";
}

std::string describe(const DeviceReport& r) {
  if (r.device.empty()) return "";
  std::string text;
  if (r.state == DeviceState::ready)
    text = fmt::format(
        "on the {}{}", r.device,
        r.fused_tokens > 0 ? fmt::format(", attention inside its graphs up to {} tokens", r.fused_tokens) : "");
  else if (r.state == DeviceState::given_up)
    text = fmt::format("on the CPU, without the {}", r.device);
  else
    text = fmt::format("on the CPU while the {} is made ready{}", r.device,
                       r.of > 0 ? fmt::format(": {} of {} graphs", r.made, r.of) : "");
  if (r.wrong_steps > 0)
    text += fmt::format("; wrong numbers in {} step{}, computed again", r.wrong_steps, r.wrong_steps == 1 ? "" : "s");
  if (r.refused_steps > 0)
    text +=
        fmt::format("; no memory for {} step{}, computed by the CPU", r.refused_steps, r.refused_steps == 1 ? "" : "s");
  if (r.losses > 0) text += fmt::format("; the {} was lost {} time{}", r.device, r.losses, r.losses == 1 ? "" : "s");
  return text;
}

}  // namespace onw
