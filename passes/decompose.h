// Coarse ops to primitives, one OpenVINO node each: what OpenVINO is given and what the NPU mode of the reference runs.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "graph/kv_format.h"
#include "graph/program.h"

namespace onw {

struct DecomposeOptions {
  int64_t rows = 1;          // of the static graph: takes the place of S
  int64_t cache_tokens = 0;  // positions of each cache input
  // Instead: the lengths of the chunks in which a state is kept, and in what format.
  std::function<std::vector<int64_t>(const StateDecl&)> chunks = {};
  KvFormat kv = KvFormat::f32;
};

// The function for a fixed number of rows, in primitives. Effects become inputs and outputs: for each state that is
// read, inputs
// "<state>.k" [heads, cache_tokens, head_dim], "<state>.v" [heads, cache_tokens, value_dim] and "<state>.mask" [rows,
// cache_tokens + rows] (0 where a row may look, a large negative number elsewhere); for each that is written, outputs
// "<state>.k_new" [heads, rows, head_dim] and "<state>.v_new". Several layers may read a state: its inputs are there
// once. A row's own K and V stand behind the cache. quantize
// becomes rounding to its codes and back (q8 values are f32 below).
//
// With chunks the inputs are, for chunk i of a state, "<state>.k.<i>" [heads, length, head_dim] and "<state>.v.<i>"
// [heads, value_dim, length] in the cache's format, for INT8 "<state>.k_scale.<i>" and "<state>.v_scale.<i>" f16
// [heads, 1, length], and for all states of a window (0: none) "window<window>.mask" [rows, positions of the chunks +
// rows]. A row's own K and V stand behind them, rounded as the cache rounds them; the outputs are "<state>.k_new"
// [rows, heads, head_dim] and "<state>.v_new" as they were.
//
// Convolution and delta states: passes/decompose_states.h.
//
// Errors: unsupported for ops of later families.
Result<Function> decompose(const Program& program, const Function& function, const DecomposeOptions& options);

}  // namespace onw
