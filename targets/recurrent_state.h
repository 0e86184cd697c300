// Convolution and delta states as all targets keep them: what the state was at the last edge of a chunk of 16 absolute
// positions, and a log of the rows since. From both, any row goes on, and rows of the log can be taken back.
//   conv   edge [kernel - 1, channels], the last inputs before it; row: the input [channels]
//   delta  edge S [heads, head_dim, value_dim]; row: k [key_heads, head_dim], u [heads, value_dim], c [heads]
// (kernels/delta/delta.h). Canonical (targets/canonical_state.h): "<state>.edge.0" and "<state>.log.0", FP32 in the
// order above, the log holding the rows from chunk_begin(length) on.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "graph/program.h"
#include "kernels/delta/delta.h"
#include "targets/executable.h"

namespace onw {

inline bool is_recurrent(const StateDecl& state) { return state.kind != StateKind::kv; }

// The edge at or before `position`.
inline int64_t chunk_begin(int64_t position) { return position / kDeltaChunk * kDeltaChunk; }

struct RecurrentForm {
  int64_t edge_floats = 0;
  int64_t row_floats = 0;
};
RecurrentForm recurrent_form(const StateDecl& state);

// Where the parts of a delta state's row begin; k is at 0.
inline int64_t delta_u_at(const StateDecl& s) { return s.key_heads * s.head_dim; }
inline int64_t delta_c_at(const StateDecl& s) { return delta_u_at(s) + s.heads * s.value_dim; }

// The key head of a value head: blocks of value heads share one, or, tiled, every key_heads-th.
inline int64_t key_head_of(int64_t head, int64_t heads, int64_t key_heads, bool tiled) {
  return tiled ? head % key_heads : head / (heads / key_heads);
}

// Errors: invalid_argument for a form that no arithmetic is for.
Result<void> check_recurrent(const StateDecl& state);

// `rows` of the log at `log`.
Result<void> export_recurrent(const StateDecl& state, const float* edge, const float* log, int64_t rows,
                              StateSink& sink);
// Into memory for the edge and for length - chunk_begin(length) rows. Errors: bad_format for blobs of another size.
Result<void> import_recurrent(const StateDecl& state, StateSource& source, float* edge, float* log);

}  // namespace onw
