// Attention inside the graphs ("fused"): the body over the first 1K, 2K, 4K, ... 32K positions of the cache, as one
// graph or a few in a row. The host does nothing between their layers, but each length is a set of graphs of its own.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "passes/cut.h"
#include "targets/openvino/compile_jobs.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/lower.h"
#include "targets/weights.h"

namespace onw::openvino {

struct FusedForm {
  int64_t rows = 1;                  // of one sequence
  int64_t length = 0;                // positions of the cache that it covers, before its rows
  std::vector<int64_t> chunks = {};  // whose lengths sum to it, of the states that keep all positions

  // Of one state: these, or its ring.
  std::vector<int64_t> chunks_of(const StateDecl& state, const ChunkForm& cache) const;
};

// Whether the host acts between the segments for caches alone, and these hold no other states: no graph with attention
// inside has the other steps.
bool can_fuse(const CutFunction& cut);

// One for each of `block_rows` and each length, the shortest first: the first chunk, the first two, ..., up to 32 times
// cache.base or to what covers the context. Where every state is a window, one length covers all.
std::vector<FusedForm> fused_forms(std::span<const int64_t> block_rows, const ChunkForm& cache);

// `pieces` of the body (passes/cut.h) as graphs. Beside the values that cross between them and those of the body, their
// ports are those of decompose over chunks. Errors: those of decompose and lower.
Result<std::vector<Ir>> lower_fused(const Program& program, const CutFunction& pieces, const FusedForm& form,
                                    const ChunkForm& cache, const WeightSet& weights, Constants& constants,
                                    std::string_view device);

// To be compiled; they point into the graphs.
std::vector<CompileJob> fused_jobs(const FusedForm& form, std::span<const Ir> graphs);

// What the graphs' mask of a window's states has for rows [first, first + rows): [form.rows, positions + form.rows], 0
// or kMasked. The rows behind the last one fill the block up, and see themselves.
void write_fused_mask(const FusedForm& form, int64_t positions, int64_t window, int64_t first, int64_t rows,
                      float* mask);

}  // namespace onw::openvino
