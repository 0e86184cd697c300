// An engine on a device that takes its time to be made, with the CPU in its place until then and wherever it fails.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "runtime/choose_device.h"
#include "runtime/engine.h"

namespace onw {

// `insisted`: the device was asked for, so that answers fail where it cannot be had. Errors: those of the CPU target.
Result<std::unique_ptr<Engine>> load_with_standby(const std::filesystem::path& model_folder,
                                                  const EngineOptions& options, const DeviceChoice& choice,
                                                  bool insisted);

}  // namespace onw
