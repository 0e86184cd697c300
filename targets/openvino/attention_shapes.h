// Which attention graphs over chunks of the cache a model needs, each once: for those who compile them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "passes/cut.h"
#include "targets/openvino/attention_graph.h"
#include "targets/openvino/compile_jobs.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/lower.h"

namespace onw::openvino {

// Of every attention between the segments of `cut`, for each of `block_rows` and each length of chunk that the context
// has, or the window's ring.
std::vector<AttentionShape> attention_shapes(const Program& program, const CutFunction& cut, const ChunkForm& cache,
                                             std::span<const int64_t> block_rows);

// Its graph, with small constants of its own: where they lie is part of its text, which must be the same whatever other
// graphs there are. Errors: those of lower.
struct AttentionIr {
  Constants constants;
  Ir ir;
};
Result<AttentionIr> lower_attention(const AttentionShape& shape, std::string_view formats);
CompileJob attention_job(const AttentionShape& shape, const Ir& ir);

}  // namespace onw::openvino
