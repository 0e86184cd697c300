// OpenVINO with owners and errors: a loaded library, models read from text, compiled for a device, and run.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/type.h"
#include "targets/openvino/api.h"

namespace onw::openvino {

// Names and values as OpenVINO's documentation has them: {"INFERENCE_PRECISION_HINT", "f32"}.
using Properties = std::vector<std::pair<std::string, std::string>>;

struct ProfileEntry {
  std::string name;            // the layer of our IR
  std::string kind;            // "FullyConnected"
  std::string implementation;  // "brgemm_avx512_f32"
  int64_t microseconds = 0;
};

class Runtime;

// Memory of ours as OpenVINO sees it. Nothing is copied: `memory` must outlive it.
class Tensor {
 public:
  const ov_tensor* get() const { return handle_.get(); }

 private:
  friend class Runtime;
  std::shared_ptr<ov_tensor> handle_;
};

// One place to run a compiled model in; not from two threads at once.
class Request {
 public:
  // An input or output by its name. It stays until another takes its place. Errors: internal for a wrong name or shape.
  Result<void> set(const std::string& name, const Tensor& tensor);
  Result<void> run();
  // The same in two calls; between them nothing else may be asked of it.
  Result<void> start();
  Result<void> wait();
  // What ran, where the model was compiled with PERF_COUNT=YES.
  Result<std::vector<ProfileEntry>> profile() const;

 private:
  friend class CompiledModel;
  std::shared_ptr<const Runtime> runtime_;
  std::shared_ptr<ov_infer_request> handle_;
};

// Where a device keeps memory that it shares with the host.
class RemoteContext {
 private:
  friend class Runtime;
  std::shared_ptr<ov_remote_context> handle_;
};

class CompiledModel {
 public:
  Result<Request> request() const;
  // Errors: internal for a property that the device does not have.
  Result<std::string> property(const std::string& name) const;
  // Writes it to `path`, for Runtime::import. The library does not notice a full disk: write to memory. Errors:
  // unsupported for a device that cannot.
  Result<void> export_to(const std::filesystem::path& path) const;

 private:
  friend class Runtime;
  std::shared_ptr<const Runtime> runtime_;
  std::shared_ptr<ov_compiled_model> handle_;
};

// It must be gone before main ends, with all that came of it: freeing it, the C library writes to its last message, a
// thread_local, which is freed before statics are.
class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  // Errors: not_found, unsupported (too old, or not what it claims to be), internal with the library's own message.
  static Result<std::shared_ptr<const Runtime>> load(const std::filesystem::path& library);

  const std::string& version() const { return version_; }  // "2026.4.1-21967-..."
  const std::filesystem::path& library() const { return library_; }
  Result<std::vector<std::string>> devices() const;  // "CPU", "GPU", "NPU"
  Result<std::string> property(const std::string& device, const std::string& name) const;

  // For all models that are compiled for the device from now on. Errors: internal.
  Result<void> set_property(const std::string& device, const std::string& name, const std::string& value) const;

  // `weights` holds the constants that the text names by offset, and is read during compiling only on the CPU device.
  // Errors: unsupported with the device, and the library's message.
  Result<CompiledModel> compile(std::string_view xml, const Tensor& weights, const std::string& device,
                                const Properties& properties) const;

  // What export_to wrote, for the same device, driver and release. `blob` may be read as long as the model lives (the
  // CPU device leaves constants where they are): `owner` keeps it. The C library takes no properties here: what must
  // hold for the model must be set for the device (set_property). Errors: unsupported with the library's message.
  Result<CompiledModel> import(std::span<const std::byte> blob, const std::string& device,
                               std::shared_ptr<const void> owner) const;

  // dtype: f32, f16, i8, u8, i4, i32.
  Result<Tensor> tensor(DType dtype, std::span<const int64_t> shape, void* memory) const;

  // Errors: unsupported where the device has none; internal with the library's message.
  Result<RemoteContext> remote_context(const std::string& device) const;
  // `bytes` of memory that both the device and we use. Errors: internal with the library's message.
  Result<std::shared_ptr<std::byte>> host_tensor(const RemoteContext& context, int64_t bytes) const;

  // The status as an error: what was tried, and what the library says.
  Failure failed(Status status, std::string_view what) const;
  const Functions& functions() const { return functions_; }

 private:
  Result<void> ask_element_types();

  Functions functions_;
  std::filesystem::path library_;
  std::string version_;
  std::shared_ptr<ov_core> core_;
  std::array<int, 6> element_types_ = {};  // OpenVINO's number of each of kDTypes
};

// The year and release of a version: {2026, 4}; {0, 0} where it is none.
std::pair<int, int> release_of(std::string_view version);

}  // namespace onw::openvino
