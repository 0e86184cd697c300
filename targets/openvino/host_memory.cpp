#include "targets/openvino/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"

namespace onw::openvino {
namespace {

constexpr int64_t kAlignment = 64;

Failure no_memory(int64_t bytes) {
  return error(Code::out_of_memory,
               "{:.1f} MB for keys, values or activations cannot be had: close other programs, or "
               "ask for less --context",
               static_cast<double>(bytes) / 1e6);
}

}  // namespace

HostMemory::HostMemory(std::shared_ptr<const Runtime> runtime, const std::string& device)
    : runtime_(std::move(runtime)) {
  if (device == "CPU") return;
  if (auto context = runtime_->remote_context(device)) context_ = std::move(*context);
}

Result<std::shared_ptr<std::byte>> HostMemory::allocate(int64_t bytes) const {
  const int64_t size = round_up(std::max(bytes, kAlignment), kAlignment);
  if (context_) {
    auto memory = runtime_->host_tensor(*context_, size);
    if (!memory) return no_memory(bytes);
    std::memset(memory->get(), 0, static_cast<size_t>(size));
    return std::move(*memory);
  }
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(size)));
  if (memory == nullptr) return no_memory(bytes);
  std::memset(memory, 0, static_cast<size_t>(size));
  return std::shared_ptr<std::byte>(memory, [](std::byte* p) { std::free(p); });
}

}  // namespace onw::openvino
