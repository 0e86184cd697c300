#include "targets/openvino/attention_shapes.h"

#include <algorithm>
#include <utility>

#include "graph/ops.h"

namespace onw::openvino {
namespace {

std::vector<int64_t> lengths_of(const StateDecl& state, const ChunkForm& cache) {
  if (const int64_t ring = cache.ring(state); ring > 0) return {ring};
  std::vector<int64_t> lengths;
  const int64_t last = chunk_of(cache.max_context - 1, cache.base).index;
  for (int64_t i = 0; i <= last; ++i) lengths.push_back(chunk_at(i, cache.base).length);
  return lengths;
}

}  // namespace

std::vector<AttentionShape> attention_shapes(const Program& program, const CutFunction& cut, const ChunkForm& cache,
                                             std::span<const int64_t> block_rows) {
  std::vector<AttentionShape> shapes;
  const auto add = [&](AttentionShape shape, int64_t rows, int64_t length) {
    shape.rows = rows;
    shape.length = length;
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  };
  for (const auto& between : cut.host)
    for (const HostStep& step : between) {
      if (step.node.op != Op::attention) continue;
      const StateDecl& state = program.states[static_cast<size_t>(program.state(step.node.attributes.text("state")))];
      const AttentionShape shape = attention_shape(step.node, state, cache.kv);
      for (const int64_t rows : block_rows)
        for (const int64_t length : lengths_of(state, cache)) add(shape, rows, length);
    }
  return shapes;
}

Result<AttentionIr> lower_attention(const AttentionShape& shape, std::string_view formats) {
  auto constants = Constants::create({});
  RETURN_IF_ERROR(constants);
  auto ir = lower(attention_graph(shape), {}, *constants, formats);
  RETURN_IF_ERROR(ir);
  return AttentionIr{std::move(*constants), std::move(*ir)};
}

CompileJob attention_job(const AttentionShape& shape, const Ir& ir) {
  return {.segment = fmt::format("attention.{}", shape.length), .rows = shape.rows, .xml = ir.xml};
}

}  // namespace onw::openvino
