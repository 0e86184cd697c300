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
#include "store/cache_store.h"
#include "targets/executable.h"

namespace onw {

struct LoadOptions {
  std::string device = "CPU";  // reference | CPU
  std::optional<KvFormat> kv;  // none: the model's default
  int threads = 0;             // 0: one per physical core, within the quota of the process
  int64_t max_context = 0;     // 0: the model's
  int max_step_rows = 512;

  // Bytes done of bytes in all, while weights are laid out anew for the device, once per machine; false stops.
  std::function<bool(int64_t done, int64_t total)> observer = {};

  bool quantised = true;  // the reference: with the integer arithmetic that the CPU computes, or in plain FP32
};

// Errors: not_found, bad_format, unsupported (a device, or a family that onw does not know), missing_tensor,
// out_of_memory, invalid_argument.
Result<std::unique_ptr<Executable>> load_executable(const std::filesystem::path& model_folder,
                                                    const LoadOptions& options);

// Where load_executable keeps weights that it laid out anew, for whoever lists or prunes them.
CacheStore layout_cache();

}  // namespace onw
