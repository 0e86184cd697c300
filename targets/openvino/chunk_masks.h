// Which positions of a chunk the rows of a step see, as the attention graphs take it: [rows, length] of 0 and kMasked.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "kernels/attention/attention.h"
#include "targets/openvino/attention_graph.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/kv_chunks.h"

namespace onw::openvino {

// Rows of one sequence that run together.
struct RowSpan {
  size_t number = 0;  // of the step's spans
  int64_t row = 0;    // its first, among the block's
  int64_t first = 0;  // that row's position
  int64_t rows = 0;
};

// Rows of a span that see anything of a chunk: [first, last), counted within the span.
struct SeeingRows {
  int64_t first = 0, last = 0;
};

class ChunkMasks {
 public:
  explicit ChunkMasks(HostMemory memory) : memory_(std::move(memory)) {}

  // A new step: what was made is stale.
  void begin() { ++step_; }

  // Of `block_rows` rows, of which the span has the first; those behind it see the chunk's beginning. Made once a step
  // for all layers; a chunk that all rows see wholly has one mask for good. Errors: out_of_memory.
  Result<const float*> of_chunk(const RowSpan& span, const ChunkPlace& place, int64_t window, int64_t block_rows);
  // The same over a ring of `length` positions, of which a row sees the last `window`.
  Result<const float*> of_ring(const RowSpan& span, int64_t length, int64_t window, int64_t block_rows);

  static SeeingRows seeing(const RowSpan& span, const ChunkPlace& place, int64_t window);

 private:
  struct Mask {
    std::shared_ptr<std::byte> memory;
    uint64_t step = 0;  // that it was made for
    float* data() const { return reinterpret_cast<float*>(memory.get()); }
  };
  // The span (-1: none, a whole chunk), what of the cache (-1: a ring), length, window, rows.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

  Result<Mask*> mask(const Key& key);

  HostMemory memory_;
  uint64_t step_ = 1;
  std::map<Key, Mask> masks_;
};

}  // namespace onw::openvino
