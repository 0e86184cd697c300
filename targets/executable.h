// The contract between the runtime and every target (reference, cpu, openvino). The runtime never looks inside a
// Sequence, a target never sees a conversation. One engine thread calls all of this; only CancelToken is touched from
// elsewhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/kv_format.h"

namespace onw {

class OpObserver;  // targets/op_observer.h

class CancelToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_ = false;
};

// Everything a sequence carries, at one length, immutable and cheap to hold: what `restore` needs and nothing more.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual int64_t length() const = 0;
  virtual int64_t bytes() const = 0;  // memory that this checkpoint alone keeps alive
};
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// The canonical state travels as named blobs, one a head (targets/canonical_state.h), in the order of layers.
// ".v_scale".
class StateSink {
 public:
  virtual ~StateSink() = default;
  virtual Result<void> put(std::string_view name, std::span<const std::byte> bytes) = 0;
};
class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual int64_t length() const = 0;
  virtual KvFormat kv_format() const = 0;
  virtual Result<std::span<const std::byte>> get(std::string_view name) = 0;
};

// The memory of one conversation, in the target's own layout. It is valid for exactly length() tokens.
class Sequence {
 public:
  virtual ~Sequence() = default;

  virtual int64_t length() const = 0;

  // Makes room for `tokens` in all, so that run() cannot fail for memory below that length. Errors: out_of_memory,
  // context_overflow.
  virtual Result<void> reserve(int64_t tokens) = 0;

  // After a step: of the rows just run, the first `rows_kept` stay (0..rows of the step). O(1). A step is kept whole
  // until then.
  virtual void commit(int rows_kept) = 0;

  // Forgets the tail. Returns the longest restorable length <= n, which is the new length: n itself for pure full
  // attention, possibly less (down to 0) where a ring or a recurrent state cannot go back.
  virtual int64_t truncate(int64_t n) = 0;

  virtual Result<CheckpointPtr> checkpoint() = 0;

  // Back to the checkpoint's state; it may come from this sequence, a fork of it or a longer-lived one of the same
  // Executable.
  virtual Result<void> restore(const Checkpoint& checkpoint) = 0;

  // A new sequence that shares the first n tokens (n <= length(), n restorable; else the error says which length is).
  virtual Result<std::unique_ptr<Sequence>> fork(int64_t n) = 0;

  virtual Result<void> export_to(StateSink& sink) const = 0;
  virtual Result<void> import_from(StateSource& source) = 0;
};

// One token (later: or image patch) of one sequence.
struct Row {
  int sequence = 0;      // index into Step::sequences
  int64_t index = 0;     // place in the cache: rows of a sequence are adjacent, ascending, and start at its length
  int32_t rope[3] = {};  // rotary position (time, height, width); text: all three equal index
  int32_t token = 0;
  std::span<const float> embedding = {};  // [hidden] instead of the token's, where not empty
  std::span<const float> carried = {};    // [hidden] beside it, for Programs that take one (ExecutableInfo::carries)
  uint64_t content_digest = 0;            // of what stands behind a placeholder token; 0 for text
  bool wants_logits = false;
  bool wants_hidden = false;
};

// A text row at `index` with its rotary position there.
inline Row text_row(int sequence, int64_t index, int32_t token, bool wants_logits) {
  const auto position = static_cast<int32_t>(index);
  return Row{.sequence = sequence,
             .index = index,
             .rope = {position, position, position},
             .token = token,
             .wants_logits = wants_logits};
}

struct Step {
  std::span<Sequence* const> sequences;
  std::span<const Row> rows;
  bool short_head = false;  // logits of the first ExecutableInfo::short_vocabulary tokens only
};

// Valid until the next run() of the same Executable.
struct Outputs {
  std::span<const float> logits;  // [rows that want logits, vocabulary or short_vocabulary], in row order
  std::span<const float> hidden;  // [rows that want hidden, hidden], in row order
};

struct MemoryNeed {
  int64_t weights_bytes = 0;  // mapped or held, once
  int64_t state_bytes = 0;    // K, V and other states for the tokens asked
  int64_t work_bytes = 0;     // activations, tables, outputs
  int64_t total() const { return weights_bytes + state_bytes + work_bytes; }
};

struct StepShape {
  int rows = 1;  // in all
  int sequences = 1;
  int64_t depth = 0;  // mean length of the sequences before the step
  int logits_rows = 1;
};

struct Cost {
  double seconds = 0;  // estimated, measured where a table exists
};

// What a target promises about the model it runs.
struct ExecutableInfo {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  bool carries = false;           // rows bring a hidden state along: a layer that guesses from another model's
  int64_t short_vocabulary = 0;   // of a head that knows the first tokens only; 0: there is none
  int64_t max_context = 0;        // tokens, of the model
  int max_step_rows = 0;          // run() takes any count up to this
  int max_partial_rows = 0;       // a step of which only a part may be kept has at most this many rows per sequence
  bool truncates_freely = false;  // every length <= length() is restorable
  KvFormat kv = KvFormat::int8;
  std::string hardware = {};  // what of the machine computes, for people: "amx, 2 threads"
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual const ExecutableInfo& info() const = 0;
  virtual Result<std::unique_ptr<Sequence>> new_sequence() = 0;
  // Bytes for `sequences` of `tokens` each, before anything is allocated.
  virtual MemoryNeed need(int64_t tokens, int sequences) const = 0;
  virtual Cost cost(const StepShape& shape) const = 0;
  // Whether one step may hold rows of several sequences, prompt and decode together.
  virtual bool mixes_prompt_and_decode() const = 0;
  // Polls `cancel` between ops. On cancel or error all sequences are as before the step. After success each sequence of
  // the step holds its rows, to be settled by Sequence::commit before its next step (a step without commit counts as
  // kept whole). Errors: cancelled, context_overflow, out_of_memory, numerics, invalid_argument (a row that breaks the
  // rules of Row).
  virtual Result<Outputs> run(const Step& step, const CancelToken& cancel) = 0;
  // Shows each op of the steps that follow to `observer`; null: none, as at the start. Results stay the same.
  virtual void observe(OpObserver* observer) { static_cast<void>(observer); }
};

}  // namespace onw
