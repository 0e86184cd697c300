#include "targets/openvino/compile_child.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/address_range.h"
#include "base/child_process.h"
#include "base/digest.h"
#include "base/mapped_file.h"
#include "base/memory_file.h"
#include "base/output_file.h"
#include "graph/json.h"
#include "store/weight_file.h"
#include "targets/openvino/blob_files.h"

namespace onw::openvino {
namespace {

using nlohmann::json;

int64_t whole_pages(int64_t bytes) {
  constexpr int64_t kPage = kPageBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

// The constants as the parent has them: the same offsets mean the same bytes.
Result<AddressRange> map_constants(const CompileOrder& order) {
  const int64_t bytes = whole_pages(order.memory_bytes);
  auto range = AddressRange::reserve(static_cast<size_t>(std::max(order.memory_at + bytes, int64_t{kPageBytes})));
  RETURN_IF_ERROR(range);
  for (const auto& file : order.files)
    RETURN_IF_ERROR(range->map_file(file.path, static_cast<size_t>(file.at), static_cast<size_t>(file.bytes)));
  if (order.memory_bytes == 0) return range;
  const auto memory = range->add_memory(static_cast<size_t>(order.memory_at), static_cast<size_t>(bytes));
  RETURN_IF_ERROR(memory);
  const auto source = MappedFile::open(order.memory);
  RETURN_IF_ERROR(source);
  if (static_cast<int64_t>(source->bytes().size()) < order.memory_bytes)
    return error(Code::truncated_file, "the constants of a graph are cut short");
  std::ranges::copy(source->bytes().first(static_cast<size_t>(order.memory_bytes)), memory->begin());
  return range;
}

bool is_about_memory(std::string_view message) {
  constexpr std::string_view kSigns[] = {"bad_alloc", "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "out of memory"};
  return std::ranges::any_of(kSigns, [&](std::string_view s) { return message.find(s) != std::string_view::npos; });
}

Failure with_code(Failure failure) {
  if (is_about_memory(failure.value().message)) failure.value().code = Code::out_of_memory;
  return failure;
}

// Into memory first, because the library does not notice a full disk.
Result<CompileAnswer> write_blob(const CompiledModel& compiled, const std::filesystem::path& output) {
  const auto memory = MemoryFile::create();
  RETURN_IF_ERROR(memory);
  if (auto written = compiled.export_to(memory->path()); !written) return with_code(failure(std::move(written)));
  const auto blob = MappedFile::open(memory->path());
  RETURN_IF_ERROR(blob);
  if (blob->bytes().empty()) return error(Code::unsupported, "the device exports nothing");
  if (static_cast<int64_t>(blob->bytes().size()) >= file_size_limit())
    return error(Code::no_space, "{}: a compiled graph is beyond the limit on the size of files of this process",
                 output.parent_path().string());
  auto file = OutputFile::open(output);
  RETURN_IF_ERROR(file);
  RETURN_IF_ERROR(file->write(blob->bytes()));
  RETURN_IF_ERROR(file->finish());
  return CompileAnswer{static_cast<int64_t>(blob->bytes().size()), sha256_hex(blob->bytes())};
}

// Twice: what the plugin keeps must load, too, before anybody relies on it.
Result<CompileAnswer> compile_without_weights(const Runtime& runtime, const CompileOrder& order,
                                              const Tensor& weights) {
  std::error_code failed;
  std::filesystem::remove_all(order.output, failed);
  std::filesystem::create_directories(order.output, failed);
  if (failed) return error(Code::io, "{}: cannot make the folder: {}", order.output.string(), failed.message());
  const Properties properties = kept_in(order.output, order.properties);
  auto compiled = runtime.compile(order.xml, weights, order.device, properties);
  if (!compiled) return with_code(failure(std::move(compiled)));
  const auto kept = digest_folder(order.output);
  RETURN_IF_ERROR(kept);
  if (kept->bytes == 0) return error(Code::unsupported, "the device keeps nothing in its cache");
  if (kept->bytes > order.most_bytes)
    return error(Code::unsupported, "what it keeps holds the weights all the same ({} bytes)", kept->bytes);
  *compiled = {};
  compiled = runtime.compile(order.xml, weights, order.device, properties);
  if (!compiled) return with_code(failure(std::move(compiled)));
  if (!came_from_cache(*compiled)) return error(Code::unsupported, "what it keeps without weights does not load");
  const auto after = digest_folder(order.output);
  RETURN_IF_ERROR(after);
  return CompileAnswer{after->bytes, after->digest};
}

Result<CompileAnswer> compile_order(const std::filesystem::path& order_file) {
  const auto text = MappedFile::open(order_file);
  RETURN_IF_ERROR(text);
  const auto order = parse_order({reinterpret_cast<const char*>(text->bytes().data()), text->bytes().size()});
  RETURN_IF_ERROR(order);
  const auto constants = map_constants(*order);
  RETURN_IF_ERROR(constants);
  const auto runtime = Runtime::load(order->library);
  RETURN_IF_ERROR(runtime);
  for (const auto& [device, properties] : order->settings)
    for (const auto& [name, value] : properties) RETURN_IF_ERROR((*runtime)->set_property(device, name, value));
  const std::array<int64_t, 1> bytes = {order->memory_at + order->memory_bytes};
  const auto weights = (*runtime)->tensor(DType::u8, bytes, constants->data());
  RETURN_IF_ERROR(weights);
  if (order->most_bytes > 0) return compile_without_weights(**runtime, *order, *weights);
  auto compiled = (*runtime)->compile(order->xml, *weights, order->device, order->properties);
  if (!compiled) return with_code(failure(std::move(compiled)));
  return write_blob(*compiled, order->output);
}

constexpr std::array kCodes = {Code::unsupported, Code::out_of_memory, Code::no_space, Code::io};

}  // namespace

Properties kept_in(const std::filesystem::path& folder, Properties properties) {
  properties.emplace_back("CACHE_DIR", folder.string());
  return properties;
}

bool came_from_cache(const CompiledModel& compiled) {
  const auto value = compiled.property("LOADED_FROM_CACHE");
  return value && (*value == "YES" || *value == "true" || *value == "1");
}

std::string to_text(const CompileOrder& order) {
  json files = json::array(), properties = json::array(), settings = json::array();
  for (const auto& [device, list] : order.settings)
    for (const auto& [name, value] : list) settings.push_back({device, name, value});
  for (const auto& file : order.files)
    files.push_back({{"path", file.path.string()}, {"at", file.at}, {"bytes", file.bytes}});
  for (const auto& [name, value] : order.properties) properties.push_back({name, value});
  return dump_json({{"library", order.library.string()},
                    {"xml", order.xml},
                    {"files", std::move(files)},
                    {"memory", order.memory.string()},
                    {"memory_at", order.memory_at},
                    {"memory_bytes", order.memory_bytes},
                    {"device", order.device},
                    {"properties", std::move(properties)},
                    {"settings", std::move(settings)},
                    {"output", order.output.string()},
                    {"most_bytes", order.most_bytes}});
}

Result<CompileOrder> parse_order(std::string_view text) {
  const json all = json::parse(text, nullptr, false);
  const auto bad = [] { return error(Code::bad_format, "onw {} is what onw starts by itself", kCompileCommand); };
  if (!all.is_object()) return bad();
  CompileOrder order{.library = find_string(all, "library").value_or(""),
                     .xml = find_string(all, "xml").value_or(""),
                     .memory = find_string(all, "memory").value_or(""),
                     .memory_at = find_int(all, "memory_at").value_or(0),
                     .memory_bytes = find_int(all, "memory_bytes").value_or(0),
                     .device = find_string(all, "device").value_or(""),
                     .output = find_string(all, "output").value_or(""),
                     .most_bytes = find_int(all, "most_bytes").value_or(0)};
  const auto files = all.find("files"), properties = all.find("properties");
  if (order.xml.empty() || order.device.empty() || order.output.empty() || files == all.end() ||
      properties == all.end() || order.memory_at < 0 || order.memory_bytes < 0)
    return bad();
  for (const json& file : *files)
    order.files.push_back({find_string(file, "path").value_or(""), find_int(file, "at").value_or(0),
                           find_int(file, "bytes").value_or(0)});
  for (const json& pair : *properties) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) return bad();
    order.properties.emplace_back(pair[0], pair[1]);
  }
  for (const json& triple : all.value("settings", json::array())) {
    if (!triple.is_array() || triple.size() != 3 ||
        !std::ranges::all_of(triple, [](const json& j) { return j.is_string(); }))
      return bad();
    order.settings.push_back({triple[0], {{triple[1], triple[2]}}});
  }
  return order;
}

std::string compile_ordered(const std::filesystem::path& order_file) {
  be_a_child();
  const auto answer = compile_order(order_file);
  if (!answer) return dump_json({{"code", name(answer.error().code)}, {"message", answer.error().message}});
  return dump_json({{"bytes", answer->bytes}, {"sha256", answer->digest}});
}

Result<CompileAnswer> parse_answer(const std::string& text) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) return error(Code::bad_format, "the process that compiles gave no answer");
  if (const auto message = find_string(all, "message")) {
    const std::string code = find_string(all, "code").value_or("");
    const auto found = std::ranges::find_if(kCodes, [&](Code c) { return name(c) == code; });
    return error(found == kCodes.end() ? Code::unsupported : *found, "{}", *message);
  }
  CompileAnswer answer{find_int(all, "bytes").value_or(0), find_string(all, "sha256").value_or("")};
  if (answer.bytes <= 0) return error(Code::bad_format, "the process that compiles gave no answer");
  return answer;
}

}  // namespace onw::openvino
