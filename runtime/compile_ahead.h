// A model's graphs for a device of OpenVINO's, compiled before anybody asks a question.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/load.h"
#include "targets/openvino/blob_options.h"
#include "targets/openvino/blob_store.h"

namespace onw {

struct CompileAheadOptions {
  std::string device = "NPU";  // NPU | GPU
  std::string platform;        // "3720", "4000", "5010": an NPU that need not be here; empty: the device's own
  bool again = false;          // tries anew what did not compile before
  std::optional<bool> fused;   // as in EngineOptions
  int64_t fused_tokens = 0;    // graphs with attention inside for so many, and the shortest in any case
  LoadObserver layout_observer = {};
  openvino::CompileObserver observer = {};
  std::shared_ptr<CancelToken> cancel = nullptr;
};

struct CompiledAhead {
  std::vector<openvino::BlobRecord> graphs;
  bool loaded = false;             // by the device, which is here; else nobody has tried them
  int64_t fused_tokens = 0;        // up to which there are graphs with attention inside
  std::string fused_trouble = {};  // why there are none, or none further
  bool stand_in = false;           // the device is OpenVINO's CPU device in the NPU's place (ONW_NPU_STAND_IN)
};

// Everything that serving takes, attention between the graphs and inside them included; for a device that is here each
// graph is loaded once.
// Errors: those of load_executable for the model; unsupported without OpenVINO, the device or a compiler, and where a
// graph does not load, with what to do; no_space, io, cancelled: what is done stays, and the same call goes on.
Result<CompiledAhead> compile_ahead(const std::filesystem::path& model_folder, const CompileAheadOptions& options);

// Where compiled graphs lie, for whoever lists or prunes them.
openvino::BlobStore blob_store();

// How a model's graphs are kept there, by processes that are this program again.
Result<openvino::BlobOptions> blob_options(const OpenedModel& model, const WeightSet& weights, std::string platform);

}  // namespace onw
