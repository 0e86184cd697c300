#include "targets/openvino/stand_in.h"

#include <cstdlib>
#include <string_view>

namespace onw::openvino {

bool stands_in_for_npu() {
  const char* value = std::getenv("ONW_NPU_STAND_IN");
  return value != nullptr && std::string_view(value) == "CPU";
}

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
