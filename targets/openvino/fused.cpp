#include "targets/openvino/fused.h"

#include <algorithm>

#include "graph/ops.h"
#include "kernels/attention/attention.h"
#include "passes/decompose.h"
#include "targets/openvino/attention_graph.h"

namespace onw::openvino {
namespace {

constexpr int64_t kLongestChunk = 5;  // all chunks up to this one are 32 times the first

}  // namespace

std::vector<int64_t> FusedForm::chunks_of(const StateDecl& state, const ChunkForm& cache) const {
  const int64_t ring = cache.ring(state);
  return ring > 0 ? std::vector<int64_t>{ring} : chunks;
}

bool can_fuse(const CutFunction& cut) {
  const auto has_states = [](const Function& f) {
    return std::ranges::any_of(f.nodes,
                               [](const Node& n) { return n.op == Op::conv_update || n.op == Op::gated_delta; });
  };
  return std::ranges::none_of(cut.segments, has_states) &&
         std::ranges::all_of(cut.host, [](const auto& steps) { return std::ranges::all_of(steps, is_of_cache); });
}

std::vector<FusedForm> fused_forms(std::span<const int64_t> block_rows, const ChunkForm& cache) {
  std::vector<FusedForm> forms;
  const auto is_ring = [&](const StateDecl& s) { return cache.ring(s) > 0; };
  if (std::ranges::all_of(cache.states, is_ring)) {
    for (const int64_t rows : block_rows) forms.push_back({.rows = rows, .length = cache.max_context});
    return forms;
  }
  std::vector<int64_t> chunks;
  for (int64_t i = 0; i <= kLongestChunk && chunk_at(i, cache.base).begin < cache.max_context; ++i) {
    const ChunkPlace place = chunk_at(i, cache.base);
    chunks.push_back(place.length);
    for (const int64_t rows : block_rows)
      forms.push_back({.rows = rows, .length = place.begin + place.length, .chunks = chunks});
  }
  return forms;
}

Result<std::vector<Ir>> lower_fused(const Program& program, const CutFunction& pieces, const FusedForm& form,
                                    const ChunkForm& cache, const WeightSet& weights, Constants& constants,
                                    std::string_view device) {
  std::vector<Ir> graphs;
  const DecomposeOptions options{
      .rows = form.rows, .chunks = [&](const StateDecl& s) { return form.chunks_of(s, cache); }, .kv = cache.kv};
  for (const Function& piece : pieces.segments) {
    const auto primitive = decompose(program, piece, options);
    RETURN_IF_ERROR(primitive);
    auto ir = lower(*primitive, weights, constants, device);
    RETURN_IF_ERROR(ir);
    graphs.push_back(std::move(*ir));
  }
  return graphs;
}

std::vector<CompileJob> fused_jobs(const FusedForm& form, std::span<const Ir> graphs) {
  std::vector<CompileJob> jobs;
  for (size_t i = 0; i < graphs.size(); ++i) {
    const std::string piece = graphs.size() > 1 ? fmt::format(".{}", i) : "";
    jobs.push_back({.segment = fmt::format("fused.{}{}", form.length, piece), .rows = form.rows, .xml = graphs[i].xml});
  }
  return jobs;
}

void write_fused_mask(const FusedForm& form, int64_t positions, int64_t window, int64_t first, int64_t rows,
                      float* mask) {
  const int64_t width = positions + form.rows;
  std::fill_n(mask, form.rows * width, kMasked);
  for (int64_t r = 0; r < form.rows; ++r) {
    float* to = mask + r * width;
    to[positions + r] = 0;
    if (r >= rows) continue;
    const Visible seen = causal(first + r, window);
    if (window == 0) std::fill_n(to, first, 0.0f);
    for (int64_t p = seen.begin; window > 0 && p < first; ++p) to[p % positions] = 0;  // of a ring
    std::fill(to + positions + std::max(seen.begin - first, int64_t{0}), to + positions + r, 0.0f);
  }
}

}  // namespace onw::openvino
