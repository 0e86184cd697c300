// Memory that a device reads and writes without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "targets/openvino/runtime.h"

namespace onw::openvino {

class HostMemory {
 public:
  // Our own, which OpenVINO's CPU device uses as it is.
  HostMemory() = default;
  // For an NPU or GPU from its driver; our own for the CPU device, and where the driver gives none.
  HostMemory(std::shared_ptr<const Runtime> runtime, const std::string& device);

  // Zeros on a line of the cache, as long as somebody holds them. Errors: out_of_memory.
  Result<std::shared_ptr<std::byte>> allocate(int64_t bytes) const;

  bool is_of_device() const { return context_.has_value(); }

 private:
  std::shared_ptr<const Runtime> runtime_;
  std::optional<RemoteContext> context_;
};

}  // namespace onw::openvino
