// Compiling one graph in a process of its own: compilers crash, hang, and take all memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

// The word by which onw starts itself for it, with the file of the order behind it.
inline constexpr std::string_view kCompileCommand = "openvino-compile";

// What is set for devices before anything is compiled.
using DeviceSettings = std::vector<std::pair<std::string, Properties>>;

struct CompileOrder {
  std::filesystem::path library;
  std::string xml;
  std::vector<Constants::MappedAt> files;  // where the graph's constants lie, and what follows the files:
  std::filesystem::path memory;            // the file of it,
  int64_t memory_at = 0, memory_bytes = 0;
  std::string device;
  Properties properties;
  DeviceSettings settings = {};
  std::filesystem::path output;
  // Not 0: the output is a folder in which the device's plugin keeps the graph without its weights, in at most so many
  // bytes.
  int64_t most_bytes = 0;
};

// The properties with which a plugin keeps a graph in the folder, or takes it from there.
Properties kept_in(const std::filesystem::path& folder, Properties properties);
// Whether it was taken from there.
bool came_from_cache(const CompiledModel& compiled);

std::string to_text(const CompileOrder& order);
Result<CompileOrder> parse_order(std::string_view text);

struct CompileAnswer {
  int64_t bytes = 0;  // of the blob
  std::string digest;
};

// What the child does: compiles, exports, writes the output file, and answers in a text. It cannot fail: the text tells
// of an error, too.
std::string compile_ordered(const std::filesystem::path& order_file);

// Errors: what the child tells of: unsupported with the compiler's message, out_of_memory, no_space, io; bad_format
// where it tells nothing.
Result<CompileAnswer> parse_answer(const std::string& text);

}  // namespace onw::openvino
