// K and V as the attention graphs read them: chunks of fixed lengths, the first two of `base` positions (1K), then 2,
// 4, 8 and 16 times as many, and of 16 from there on, so that a longer context compiles nothing again. Chunks are
// counted by reference and copied when a shared one is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/program.h"
#include "targets/executable.h"

namespace onw::openvino {

struct ChunkPlace {
  int64_t index = 0;
  int64_t begin = 0;  // its first position
  int64_t length = 0;
};

// The chunk that holds `position`.
ChunkPlace chunk_of(int64_t position, int64_t base);
// Where chunk `index` lies.
ChunkPlace chunk_at(int64_t index, int64_t base);

// One chunk of one state. K [heads, length, head_dim], V [heads, value_dim, length], scales F16 [heads, length] (INT8).
struct KvChunk {
  KvChunk(const StateDecl& state, KvFormat format, int64_t length);

  std::vector<std::byte> k, v;  // zeros at first: what is masked is multiplied by 0, and must be finite
  std::vector<uint16_t> k_scale, v_scale;
};

int64_t element_bytes(KvFormat format);
int64_t chunk_bytes(const StateDecl& state, KvFormat format, int64_t length);

// What all sequences of a model share.
struct ChunkForm {
  std::vector<StateDecl> states;
  KvFormat kv = KvFormat::f16;
  int64_t max_context = 0;
  int64_t base = 1024;
};

class ChunkSequence final : public Sequence {
 public:
  explicit ChunkSequence(std::shared_ptr<const ChunkForm> form);

  int64_t length() const override { return length_; }
  Result<void> reserve(int64_t tokens) override;
  void commit(int rows_kept) override;
  int64_t truncate(int64_t n) override;
  Result<CheckpointPtr> checkpoint() override;
  Result<void> restore(const Checkpoint& checkpoint) override;
  Result<std::unique_ptr<Sequence>> fork(int64_t n) override;
  Result<void> export_to(StateSink& sink) const override;
  Result<void> import_from(StateSource& source) override;

  // For the executor: room for rows [length, length + rows), one row's K and V, then the step's end.
  Result<void> prepare(int64_t rows);
  void write(size_t state, int64_t position, const float* k, const float* v);
  void extend(int64_t rows);
  KvChunk& chunk(size_t state, int64_t index) { return *states_[state].chunks[static_cast<size_t>(index)]; }

 private:
  using ChunkPtr = std::shared_ptr<KvChunk>;
  struct State {
    std::vector<ChunkPtr> chunks;
    int64_t first_kept = 0;  // an imported window has no positions before it
  };
  friend class ChunkCheckpoint;
  void cut(int64_t n);
  bool restorable(int64_t n) const;

  std::shared_ptr<const ChunkForm> form_;
  std::vector<State> states_;
  int64_t length_ = 0;
  int64_t last_step_rows_ = 0;
};

}  // namespace onw::openvino
