#include "targets/openvino/graphs.h"

#include "base/output_file.h"
#include "passes/decompose.h"

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

}  // namespace

Result<std::vector<std::string>> write_graphs(const Program& program, const WeightSet& weights, int64_t rows,
                                              std::string_view device, const std::filesystem::path& folder) {
  const Function* body = program.function("body");
  const Function* head = program.function("head");
  if (body == nullptr || head == nullptr)
    return error(Code::invalid_argument, "the program has no function 'body' or 'head'");
  auto cut = cut_at_host_steps(*body);
  RETURN_IF_ERROR(cut);
  cut->segments.push_back(*head);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return error(Code::io, "{}: cannot be made: {}", folder.string(), failure.message());
  std::vector<std::string> names;
  for (const Function& segment : cut->segments) {
    auto constants = Constants::create(weights, true);
    RETURN_IF_ERROR(constants);
    const auto ir = lower_function(program, segment, weights, *constants, rows, device);
    RETURN_IF_ERROR(ir);
    RETURN_IF_ERROR(write_file(folder / (segment.name + ".xml"), std::as_bytes(std::span(ir->xml))));
    RETURN_IF_ERROR(write_file(folder / (segment.name + ".bin"), constants->memory()));
    names.push_back(segment.name);
  }
  return names;
}

}  // namespace onw::openvino
