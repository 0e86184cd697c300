// How the target keeps K and V and attends between segments: in the CPU's pages with its kernels, or in chunks with
// graphs that the host merges.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "passes/cut.h"
#include "targets/cpu/plan.h"
#include "targets/executable.h"
#include "targets/openvino/buffers.h"
#include "targets/openvino/compile_jobs.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/runtime.h"
#include "targets/weights.h"

namespace onw::openvino {

class KvSide {
 public:
  virtual ~KvSide() = default;

  virtual std::unique_ptr<Sequence> new_sequence() = 0;
  // Room for `rows` more rows; after the step they are there.
  virtual Result<void> prepare(Sequence& sequence, int64_t rows) = 0;
  virtual void extend(Sequence& sequence, int64_t rows) = 0;

  // The rows that are about to run, of any sequences, before their first segment; then what the host does behind each
  // segment.
  virtual Result<void> begin(const Step& step, std::span<const Row> rows) = 0;
  virtual Result<void> run(size_t segment, std::byte* arena) = 0;
  // Of the rows that begin() was told of: where each sequence's lie, and its convolution and delta states.
  virtual std::span<const cpu::Span> spans() const = 0;
  // Seconds inside the device since the start: no work of the host's.
  virtual double device_seconds() const { return 0; }
  // And in attention by the host's own kernels, which is the model's work too.
  virtual double attention_seconds() const { return 0; }

  virtual int64_t state_bytes(int64_t tokens) const = 0;
  virtual bool truncates_freely() const = 0;

  // Of its sequences, which are ChunkSequences then; none for pages.
  virtual std::shared_ptr<const ChunkForm> chunk_form() const { return nullptr; }
};

struct KvSideOptions {
  KvFormat kv = KvFormat::f16;
  Isa isa = Isa::generic;
  int threads = 1;
  ThreadPool* pool = nullptr;
  int64_t max_rows = 0;  // of the buffers
  int64_t max_context = 0;
  int64_t max_step_rows = 0;
};

// `cut` and `buffers` must outlive what is made. Errors: missing_tensor for sinks, unsupported for attention that the
// host does not have.
Result<std::unique_ptr<KvSide>> make_page_side(const Program& program, const CutFunction& cut,
                                               const BufferPlan& buffers, const WeightSet& weights,
                                               const KvSideOptions& options);

// Attention graphs for `block_rows`, over each length of chunk that the context has, are compiled here and kept: a
// step compiles nothing, and a longer context only lengths that a shorter one did not have.
struct ChunkSideOptions {
  std::shared_ptr<const Runtime> runtime;
  std::function<Result<CompiledModel>(const CompileJob& job, const Constants& constants)> compile;
  std::string_view formats = "openvino:CPU";  // the device's column of the table of formats
  std::vector<int64_t> block_rows;            // ascending
  int64_t base = 1024;                        // positions of the first chunk
  int most_requests = 64;
  HostMemory memory = {};
};
Result<std::unique_ptr<KvSide>> make_chunk_side(const Program& program, const CutFunction& cut,
                                                const BufferPlan& buffers, const WeightSet& weights,
                                                const KvSideOptions& options, const ChunkSideOptions& chunks);

}  // namespace onw::openvino
