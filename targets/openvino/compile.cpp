#include "targets/openvino/compile.h"

#include <algorithm>
#include <array>

#include "targets/openvino/graphs.h"

namespace onw::openvino {

namespace {

constexpr int kQuantisedGroup = 128;

// Whether rows quantised by groups of 128 meet every weight's scales.
bool takes_groups(const Program& program) {
  return std::ranges::all_of(program.weights, [](const WeightDecl& w) {
    const FormatInfo& f = info(w.format);
    return w.role != WeightRole::matrix || f.plain() || f.group % kQuantisedGroup == 0;  // 0: one scale per output
  });
}

}  // namespace

Properties device_properties(const OpenVinoOptions& o, const Program& program) {
  if (!o.properties.empty()) return o.properties;
  const bool groups = !o.exact && takes_groups(program);
  Properties all = {{"DYNAMIC_QUANTIZATION_GROUP_SIZE", groups ? std::to_string(kQuantisedGroup) : "0"},
                    {"PERFORMANCE_HINT", "LATENCY"},
                    {"INFERENCE_NUM_THREADS", std::to_string(o.threads)}};
  if (o.exact || groups) all.emplace_back("INFERENCE_PRECISION_HINT", "f32");
  return all;
}

Result<CompiledBlocks> compile_blocks(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                      const OpenVinoOptions& options, std::string_view device) {
  auto constants = Constants::create(weights);
  RETURN_IF_ERROR(constants);
  std::vector<int64_t> sizes = options.block_rows;
  if (sizes.empty()) sizes.push_back(kRows);
  const int total = static_cast<int>(sizes.size() * (cut.segments.size() + 1));
  int done = 0;
  CompiledBlocks compiled;
  for (const int64_t rows : sizes) {
    const auto graphs = lower_program(program, cut, weights, *constants, rows, device);
    RETURN_IF_ERROR(graphs);
    const std::array<int64_t, 1> bytes = {constants->bytes()};
    const auto memory = options.runtime->tensor(DType::u8, bytes, constants->data());
    RETURN_IF_ERROR(memory);
    Block& block = compiled.blocks.emplace_back();
    block.rows = rows;
    const auto add = [&](const Ir& ir, std::vector<Graph>& to) -> Result<void> {
      auto graph = Graph::compile(options.runtime, ir, *memory, rows, options.openvino_device,
                                  device_properties(options, program));
      RETURN_IF_ERROR(graph);
      to.push_back(std::move(*graph));
      constants->drop_file_pages();  // packed: only one copy of the weights stays
      if (options.on_compiled && !options.on_compiled(++done, total)) return error(Code::cancelled, "stopped");
      return {};
    };
    for (const Ir& ir : graphs->body) RETURN_IF_ERROR(add(ir, block.body));
    RETURN_IF_ERROR(add(graphs->head, block.head));
  }
  compiled.constants = std::make_unique<Constants>(std::move(*constants));
  return compiled;
}

}  // namespace onw::openvino
