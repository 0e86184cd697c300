// Which device computes which weight format: natively, in a rewritten form, or not at all.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/weight_format.h"

namespace onw {

enum class Support : uint8_t { refused, rewritten, native };

// "cpu", "openvino:CPU", and the NPU generations "3720", "4000", "5010". "npu" asks for what all generations take.
std::span<const std::string_view> all_devices();
Support support(WeightFormat format, std::string_view device);
bool is_npu(std::string_view device);

// What helps where a device refuses a format: a command. "onw convert SRC OUT --for npu".
std::string_view remedy(std::string_view device);

// The devices that take every one of the formats.
std::vector<std::string> runs_on(std::span<const WeightFormat> formats);

}  // namespace onw
