// K and V as the attention graphs read them: chunks of fixed lengths, the first two of `base` positions (1K), then 2,
// 4, 8 and 16 times as many, and of 16 from there on, so that a longer context compiles nothing again. A window is one
// ring of window + largest step positions, so that a step that is given up has overwritten nothing that is still seen.
// Chunks are counted by reference and copied when a shared one is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/program.h"
#include "targets/cpu/recurrent_pages.h"
#include "targets/executable.h"
#include "targets/openvino/held_states.h"
#include "targets/openvino/host_memory.h"

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

// One chunk of one state, or its ring. K [heads, length, head_dim], V [heads, value_dim, length], scales F16 [heads,
// length] (INT8).
class KvChunk {
 public:
  // Zeros at first: what is masked is multiplied by 0, and must be finite. Errors: out_of_memory.
  static Result<std::shared_ptr<KvChunk>> create(const StateDecl& state, KvFormat format, int64_t length,
                                                 const HostMemory& memory);
  Result<std::shared_ptr<KvChunk>> copy(const HostMemory& memory) const;

  std::byte* k() const { return memory_.get(); }
  std::byte* v() const { return memory_.get() + v_at_; }
  uint16_t* k_scale() const { return reinterpret_cast<uint16_t*>(memory_.get() + k_scale_at_); }
  uint16_t* v_scale() const { return reinterpret_cast<uint16_t*>(memory_.get() + v_scale_at_); }
  // Of this memory alone, whatever lies at its address later.
  uint64_t id() const { return id_; }

 private:
  std::shared_ptr<std::byte> memory_;
  int64_t v_at_ = 0, k_scale_at_ = 0, v_scale_at_ = 0, bytes_ = 0;
  uint64_t id_ = 0;
};

int64_t element_bytes(KvFormat format);
int64_t chunk_bytes(const StateDecl& state, KvFormat format, int64_t length);

// What all sequences of a model share.
struct ChunkForm {
  std::vector<StateDecl> states;  // of K and V
  KvFormat kv = KvFormat::f16;
  int64_t max_context = 0;
  int64_t base = 1024;
  int64_t max_step_rows = 64;  // the part of a ring beside its window
  HostMemory memory = {};
  std::vector<StateDecl> recurrent = {};  // convolutions and delta states, kept as the CPU target keeps them
  std::shared_ptr<cpu::PagePool> pages = std::make_shared<cpu::PagePool>();

  // Positions of the ring of a window; 0 for a state that keeps all.
  int64_t ring(const StateDecl& state) const { return state.window > 0 ? state.window + max_step_rows : 0; }
  // Where a position of the state lies: in a ring at begin = 0.
  struct Cell {
    ChunkPlace chunk;
    int64_t at = 0;  // within it
  };
  Cell cell(const StateDecl& state, int64_t position) const;
};

// Of a program's states; `form` has the rest.
ChunkForm chunk_form(const Program& program, ChunkForm form);

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
  std::vector<cpu::RecurrentPages>& recurrent() { return recurrent_; }
  HeldStates& held() { return held_; }
  int64_t chunks(size_t state) const { return static_cast<int64_t>(states_[state].chunks.size()); }
  KvChunk& chunk(size_t state, int64_t index) const { return *states_[state].chunks[static_cast<size_t>(index)]; }

 private:
  using ChunkPtr = std::shared_ptr<KvChunk>;
  struct State {
    std::vector<ChunkPtr> chunks;
    int64_t first_kept = 0;  // a ring, or an imported window, has no positions before it
  };
  friend class ChunkCheckpoint;
  Result<void> make_rooms(int64_t rows);  // for so many in all chunks and rings
  Result<void> make_room(size_t state, int64_t index, int64_t length);
  void cut(int64_t n);
  void go_back(int64_t n);
  int64_t restorable(int64_t n) const;  // the longest length of at most n

  std::shared_ptr<const ChunkForm> form_;
  std::vector<State> states_;
  std::vector<cpu::RecurrentPages> recurrent_;
  HeldStates held_;  // of recurrent_, where graphs hold them
  int64_t length_ = 0;
  int64_t last_step_rows_ = 0;
};

}  // namespace onw::openvino
