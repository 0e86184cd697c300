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

DeviceReport since(const DeviceReport& before, const DeviceReport& now) {
  DeviceReport r = now;
  for (int64_t DeviceReport::* const counter :
       {&DeviceReport::device_steps, &DeviceReport::standby_steps, &DeviceReport::rest_steps, &DeviceReport::moves,
        &DeviceReport::wrong_steps, &DeviceReport::refused_steps, &DeviceReport::losses})
    r.*counter -= before.*counter;
  r.begun_making = before.state == DeviceState::making;
  return r;
}

namespace {

std::string who_computed(const DeviceReport& r) {
  const std::string fused =
      r.fused_tokens > 0 ? fmt::format(", attention inside its graphs up to {} tokens", r.fused_tokens) : "";
  const bool stopped_before = r.state == DeviceState::ready && r.device_steps == 0;  // whose step would have come
  if ((r.device_steps > 0 || stopped_before) && r.standby_steps == 0)
    return fmt::format("on the {}{}", r.device, fused);
  if (r.device_steps > 0)
    return fmt::format("{} step{} on the CPU{}, {} on the {}{}", r.standby_steps, r.standby_steps == 1 ? "" : "s",
                       r.rest_steps > 0 ? fmt::format(" while the {}'s graphs are loaded", r.device) : "",
                       r.device_steps, r.device, fused);
  if (r.state == DeviceState::ready && r.rest_steps > 0)
    return fmt::format("on the CPU while the {}'s graphs are loaded", r.device);
  if (r.state == DeviceState::ready && r.begun_making)
    return fmt::format("on the CPU; the {} is ready for the next answer", r.device);
  if (r.state == DeviceState::ready) return "on the CPU";
  if (r.state == DeviceState::given_up) return fmt::format("on the CPU, without the {}", r.device);
  if (r.of == 0) return fmt::format("on the CPU while the {}'s graphs are loaded", r.device);
  return fmt::format("on the CPU while the {}'s graphs are compiled: {} of {}", r.device, r.made, r.of);
}

}  // namespace

std::string describe(const DeviceReport& r) {
  if (r.device.empty()) return "";
  std::string text = who_computed(r);
  if (r.wrong_steps > 0)
    text += fmt::format("; wrong numbers in {} step{}, computed again", r.wrong_steps, r.wrong_steps == 1 ? "" : "s");
  if (r.refused_steps > 0)
    text +=
        fmt::format("; no memory for {} step{}, computed by the CPU", r.refused_steps, r.refused_steps == 1 ? "" : "s");
  if (r.losses > 0) text += fmt::format("; the {} was lost {} time{}", r.device, r.losses, r.losses == 1 ? "" : "s");
  return text;
}

}  // namespace onw
