#include "targets/openvino/stand_in.h"

#include <cstdlib>
#include <string_view>

namespace onw::openvino {

Result<bool> npu_stand_in() {
  const char* value = std::getenv("ONW_NPU_STAND_IN");
  const std::string_view device = value == nullptr ? "" : value;
  if (device.empty() || device == "CPU") return device == "CPU";
  return error(Code::usage,
               "ONW_NPU_STAND_IN is '{}', but only OpenVINO's CPU device can stand in for an NPU: set it to CPU, or "
               "unset it",
               device);
}

bool stands_in_for_npu() { return npu_stand_in().value_or(false); }

Properties stand_in_properties() {
  return {{"NPU_USE_NPUW", "YES"}, {"NPUW_DEVICES", "CPU"}, {"NPUW_ONLINE_PIPELINE", "NONE"}};
}

DeviceSettings stand_in_settings(bool exact) {
  return {{"CPU", {{"INFERENCE_PRECISION_HINT", "f32"}, {"DYNAMIC_QUANTIZATION_GROUP_SIZE", exact ? "0" : "128"}}}};
}

Result<void> prepare_stand_in(const Runtime& runtime, bool exact) {
  for (const auto& [device, properties] : stand_in_settings(exact))
    for (const auto& [key, value] : properties) RETURN_IF_ERROR(runtime.set_property(device, key, value));
  return {};
}

}  // namespace onw::openvino
