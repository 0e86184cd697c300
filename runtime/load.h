// From a model folder to something that runs: the folder's config makes a Program, passes fit it to a device, a target
// executes it. For whoever needs logits rather than answers (eval, bench); Engine::load builds on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "graph/program.h"
#include "runtime/choose_device.h"
#include "runtime/device_status.h"
#include "store/cache_store.h"
#include "store/model_folder.h"
#include "targets/executable.h"
#include "targets/openvino/blob_options.h"
#include "targets/openvino/fused_news.h"
#include "targets/openvino/platforms.h"
#include "targets/weights.h"

namespace onw {

// Bytes done of bytes in all, while weights are laid out anew for the device, once per machine; false stops.
using LoadObserver = std::function<bool(int64_t done, int64_t total)>;

struct LoadOptions {
  std::string device = "CPU";  // NPU | GPU | CPU | openvino:CPU | reference; empty: as runtime/choose_device.h says
  std::optional<KvFormat> kv;  // none: the family's default (models/registry.h)
  int threads = 0;             // 0: one per physical core, within the quota of the process
  int64_t max_context = 0;     // tokens, at most the model's; 0: the model's
  int max_step_rows = 512;
  LoadObserver observer = {};
  // The reference: with the integer arithmetic that the CPU computes, or in plain FP32. OpenVINO's devices: with
  // activations quantised by groups, or in FP32.
  bool quantised = true;
  // OpenVINO's devices: graphs compiled of all, false stops; and a token that stops between two of them.
  std::function<bool(int done, int total)> on_compiled = {};
  std::shared_ptr<CancelToken> cancel = {};
  // The NPU and GPU: whether graphs with attention inside are made beside the answers; none: as the device has it
  // (targets/openvino/platforms.h). What becomes of them, from any thread.
  std::optional<bool> fused = {};
  int64_t fused_at_once = 0;  // for so many tokens, before anybody has as many
  std::function<void(const FusedNews& news)> on_fused = {};
  // What chose the device, where that is no flag: "ONW_DEVICE=NPU"; in messages.
  std::string device_chosen_by = {};
  // With the layer that predicts one token further, where the folder has one: the result is then an Mtp
  // (runtime/mtp.h). CPU and reference alone have it; why there is none goes to `on_no_mtp`.
  bool mtp = false;
  std::function<void(const std::string& why)> on_no_mtp = {};
  // OpenVINO's NPU and GPU: changes how their graphs are kept and compiled; and what should be told of them.
  std::function<void(openvino::BlobOptions& blobs)> with_blobs = {};
  Notice notice = {};
};

// Errors: not_found, bad_format, unsupported (a device, or a family that onw does not know), missing_tensor,
// out_of_memory, invalid_argument.
Result<std::unique_ptr<Executable>> load_executable(const std::filesystem::path& model_folder,
                                                    const LoadOptions& options);
// The same on a device that is chosen already.
Result<std::unique_ptr<Executable>> load_executable(const std::filesystem::path& model_folder,
                                                    const LoadOptions& options, const DeviceChoice& choice);

// The same, opened only: for whoever looks at the graph.
struct OpenedModel {
  std::shared_ptr<const ModelFolder> folder;
  Program program;  // its formats bound to what the folder holds
};
Result<OpenedModel> open_model(const std::filesystem::path& model_folder);

// The weights in rows, as OpenVINO reads them. Errors: missing_tensor, no_space, io.
Result<WeightSet> row_weights(const OpenedModel& model, const LoadObserver& observer = {});

// What the planner of OpenVINO's graphs asks of a model; memory is not bounded. Errors: those of cut_at_host_steps.
Result<openvino::ModelShape> graph_shape(const Program& program, const WeightSet& weights, std::optional<bool> fused);

// The weights as the CPU's kernels read them. Errors: missing_tensor, no_space, io.
Result<WeightSet> cpu_weights(const OpenedModel& model, const LoadObserver& observer = {});

// Where load_executable keeps weights that it laid out anew, for whoever lists or prunes them.
CacheStore layout_cache();

}  // namespace onw
