// For trying the NPU's path where there is no NPU: its plugin takes the graphs, cuts and hands them on to OpenVINO's
// CPU device. ONW_NPU_STAND_IN=CPU asks for it.
#pragma once

#include "targets/openvino/compile_child.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

bool stands_in_for_npu();
// The same. Errors: usage, for another value than CPU.
Result<bool> npu_stand_in();
// No enumeration shows what stands in; it is taken for the generation that most formats are native to.
inline constexpr const char* kStandInArchitecture = "4000";
// With which properties the plugin does so.
Properties stand_in_properties();
// The properties of the CPU device itself, which are not handed on: FP32, and activations quantised by groups or not.
DeviceSettings stand_in_settings(bool exact);
Result<void> prepare_stand_in(const Runtime& runtime, bool exact);

}  // namespace onw::openvino
