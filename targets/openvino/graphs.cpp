#include "targets/openvino/graphs.h"

#include <algorithm>

#include "base/output_file.h"
#include "graph/ops.h"
#include "passes/decompose.h"
#include "targets/openvino/attention_graph.h"
#include "targets/openvino/expert_side.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/platforms.h"

namespace onw::openvino {
namespace {

Result<Ir> lower_function(const Program& program, const Function& function, const WeightSet& weights,
                          Constants& constants, int64_t rows, std::string_view device) {
  const auto primitive = decompose(program, function, {.rows = rows});
  RETURN_IF_ERROR(primitive);
  return lower(*primitive, weights, constants, device);
}

}  // namespace

Result<ProgramGraphs> lower_program(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                    Constants& constants, int64_t rows, std::string_view device) {
  ProgramGraphs graphs;
  for (const Function& segment : cut.segments) {
    auto ir = lower_function(program, segment, weights, constants, rows, device);
    RETURN_IF_ERROR(ir);
    graphs.body.push_back(std::move(*ir));
  }
  const Function* head = program.function("head");
  CHECK(head != nullptr);
  auto ir = lower_function(program, *head, weights, constants, rows, device);
  RETURN_IF_ERROR(ir);
  graphs.head = std::move(*ir);
  return graphs;
}

namespace {

Result<void> write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  auto file = OutputFile::open(path);
  RETURN_IF_ERROR(file);
  RETURN_IF_ERROR(file->write(bytes));
  return file->finish();
}

// A graph that `make` lowers, as a pair of files.
template <class Make>
Result<void> write_graph(const WeightSet& weights, const std::filesystem::path& stem, Make make) {
  auto constants = Constants::create(weights, true);
  RETURN_IF_ERROR(constants);
  const Result<Ir> ir = make(*constants);
  RETURN_IF_ERROR(ir);
  RETURN_IF_ERROR(write_file(stem.string() + ".xml", std::as_bytes(std::span(ir->xml))));
  return write_file(stem.string() + ".bin", constants->memory());
}

// What the attentions of a function look like, each once.
std::vector<AttentionShape> attention_shapes(const Program& program, const CutFunction& cut, KvFormat kv) {
  std::vector<AttentionShape> shapes;
  for (const auto& between : cut.host)
    for (const HostStep& step : between) {
      if (step.node.op != Op::attention) continue;
      const int state = program.state(step.node.attributes.text("state"));
      const AttentionShape shape = attention_shape(step.node, program.states[static_cast<size_t>(state)], kv);
      if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
    }
  return shapes;
}

constexpr int64_t kChunkBase = 1024;

// Those of experts that a step of so many rows runs, where the device takes experts at run time.
Result<std::vector<ExpertShape>> expert_shapes_of(const Program& program, const CutFunction& cut,
                                                  const WeightSet& weights, const WriteOptions& options) {
  const Platform* platform = find_platform(options.device);
  if (platform == nullptr || platform->expert_requests == 0) return std::vector<ExpertShape>();
  auto shapes = expert_shapes(program, cut, weights, options.rows);
  RETURN_IF_ERROR(shapes);
  int64_t most = 0;  // of those together the ones that hold the rows; else all batches
  for (const ExpertShape& s : *shapes) most = std::max(most, s.grouped ? options.rows + 1 : s.rows);
  std::erase_if(*shapes, [&](const ExpertShape& s) { return !s.grouped && s.rows < most; });
  return shapes;
}

}  // namespace

Result<std::vector<std::string>> write_graphs(const Program& program, const WeightSet& weights,
                                              const WriteOptions& options, const std::filesystem::path& folder) {
  const Function* body = program.function("body");
  const Function* head = program.function("head");
  if (body == nullptr || head == nullptr)
    return error(Code::invalid_argument, "the program has no function 'body' or 'head'");
  auto cut = options.rows == kRows ? cut_at_host_steps(*body) : cut_for_fixed_rows(*body);
  RETURN_IF_ERROR(cut);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return error(Code::io, "{}: cannot be made: {}", folder.string(), failure.message());
  std::vector<std::string> names;
  std::vector<Function> functions = cut->segments;
  functions.push_back(*head);
  for (const Function& f : functions) {
    names.push_back(f.name);
    RETURN_IF_ERROR(write_graph(weights, folder / f.name, [&](Constants& constants) {
      return lower_function(program, f, weights, constants, options.rows, options.device);
    }));
  }
  const std::vector<AttentionShape> shapes = attention_shapes(program, *cut, options.kv);
  for (size_t i = 0; i < shapes.size(); ++i)
    for (int64_t chunk = 1; chunk <= 5 && chunk_at(chunk, kChunkBase).begin < 2 * program.max_context; ++chunk) {
      AttentionShape shape = shapes[i];
      shape.rows = options.rows;
      shape.length = chunk_at(chunk, kChunkBase).length;
      names.push_back(fmt::format("attention.{}.{}", i, shape.length));
      RETURN_IF_ERROR(write_graph(weights, folder / names.back(), [&](Constants& constants) {
        return lower(attention_graph(shape), weights, constants, options.device);
      }));
    }
  const auto experts = expert_shapes_of(program, *cut, weights, options);
  RETURN_IF_ERROR(experts);
  for (const ExpertShape& shape : *experts) {
    names.push_back(fmt::format("{}.{}.{}", segment_name(shape), shape.rows, &shape - experts->data()));
    RETURN_IF_ERROR(write_graph(weights, folder / names.back(),
                                [&](Constants& constants) { return lower_experts(shape, constants, options.device); }));
  }
  return names;
}

}  // namespace onw::openvino
