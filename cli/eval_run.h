// Runs ids through one executable, or through two side by side, and measures the logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/eval_metrics.h"
#include "cli/layer_errors.h"
#include "targets/executable.h"

namespace onw::cli {

// Where rows of logits come from, in the order of the ids.
class LogitsSource {
 public:
  virtual ~LogitsSource() = default;
  virtual int64_t vocabulary() const = 0;
  // [ids.size(), vocabulary], valid until the next call. `fresh`: nothing of what came before is remembered.
  virtual Result<std::span<const float>> next(std::span<const int32_t> ids, bool fresh) = 0;
  // What the layers handed on in the last `next`; null where only logits are known.
  virtual const LayerTap* layers() const { return nullptr; }
};

// Errors of `next`: those of the executable. `rests`: before each step it waits for all that the target prepares by
// itself, so that graphs with attention inside compute what they can.
std::unique_ptr<LogitsSource> executable_logits(std::shared_ptr<Executable> executable, bool rests = false);

// A file that --save-logits wrote. Errors: bad_format; of `next`: invalid_argument where its ids are others.
Result<std::unique_ptr<LogitsSource>> saved_logits(const std::string& path);

struct EvalRun {
  std::span<const int32_t> ids;
  int64_t window = 0;  // ids that see each other; each window begins anew
  int rows_per_step = 64;
  std::function<void(int64_t done)> progress = {};
  std::function<Result<void>(std::span<const float> logits)> sink = {};  // of every step, in order
};

// Layers are compared where both sources know them.
Result<EvalSummary> run_eval(LogitsSource& source, LogitsSource* reference, const EvalRun& run);

}  // namespace onw::cli
