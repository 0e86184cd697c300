// Convolution and delta states inside graphs of fixed rows (passes/decompose_states.h): bound where they lie, the new
// ones written to other memory, which the next step reads.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "graph/program.h"
#include "targets/openvino/graph.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/kv_chunks.h"

namespace onw::openvino {

// The canonical state is the pages': the state at the last edge of 16 positions, and the rows since (k, u and the sums
// of g, which the graphs hand out). They are written after each block, so forks, checkpoints and rows that are taken
// back are those of the pages. A graph's state is made from them where it is not what the last step left: of another
// sequence's conversation, and behind each edge that single rows pass, because a device that rounds its state with
// every row would lose what decays slowly.
class GraphStates {
 public:
  // `block_rows`: ascending. Errors: out_of_memory.
  static Result<std::unique_ptr<GraphStates>> create(const Program& program, std::span<const int64_t> block_rows,
                                                     const HostMemory& memory, ThreadPool& pool);

  // A step of rows [first, first + rows) of the sequence, which has `first` tokens. Each segment then takes all its
  // blocks, in order, before the next segment does.
  Result<void> begin(ChunkSequence& sequence, int64_t rows);
  // Places the ports of a segment's graph for `rows` rows from row `offset` of the step on: its states stand behind
  // what the segment's block before has left.
  Result<void> begin_block(ChunkSequence& sequence, int64_t offset, int64_t rows, int64_t block_rows, Graph& graph);
  // After that block: what it left, into the pages.
  void finish_block(ChunkSequence& sequence, const Graph& graph);

  // Of one sequence, beside its pages, and of all together.
  int64_t sequence_bytes() const;
  int64_t work_bytes() const;

 private:
  struct State {
    StateDecl decl;
    bool tiled = false;
    std::map<std::string, std::shared_ptr<std::byte>> rows;  // "k", "u", "g": of the block that has run last
    std::vector<std::shared_ptr<std::byte>> spare;           // for what a block of up to 4 rows, or of more, leaves
  };

  explicit GraphStates(const HostMemory& memory, ThreadPool& pool) : memory_(memory), pool_(pool) {}
  int64_t left_floats(const State& s) const;
  Result<std::shared_ptr<std::byte>> take(State& s) const;
  Result<void> make_now(ChunkSequence& sequence);
  const std::vector<size_t>& states_of(const Graph& graph);
  Result<HeldState> behind(State& s, cpu::RecurrentPages& pages, const LeftStates& left,
                           const std::shared_ptr<std::byte>& memory, int64_t length) const;
  Result<HeldState> from_pages(State& s, cpu::RecurrentPages& pages, int64_t length) const;
  bool in_own_chunk(int64_t position) const { return chunk_begin(position) == chunk_begin(step_first_); }
  void keep_conv(const State& s, const float* all, cpu::RecurrentPages& pages) const;
  void keep_delta(const State& s, const float* after, cpu::RecurrentPages& pages) const;
  void log_row(const State& s, int64_t i, const float* before, float* to) const;

  HostMemory memory_;
  ThreadPool& pool_;
  std::map<const Graph*, std::vector<size_t>> of_graph_;  // the states that it holds
  std::vector<State> states_;                             // as ChunkSequence::recurrent()
  std::shared_ptr<std::byte> used_;
  int64_t most_rows_ = 0, most_recurrent_ = 0;     // of a block, and of one whose rows leave a state each
  int64_t step_first_ = 0, step_rows_ = 0;         // that run
  int64_t first_ = 0, rows_ = 0, block_rows_ = 0;  // of the block that runs
};

}  // namespace onw::openvino
