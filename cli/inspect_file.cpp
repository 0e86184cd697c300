#include "cli/inspect_file.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "convert/gguf.h"
#include "store/safetensors.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

struct Tensor {
  std::string name;
  std::string type;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

struct Contents {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<Tensor> tensors;
};

std::string value_text(const GgufValue& value) {
  struct Show {
    std::string operator()(const GgufArray& a) const {
      return fmt::format("{} {}", a.count, a.is_strings() ? "strings" : "numbers");
    }
    std::string operator()(std::string_view s) const {
      constexpr size_t kMost = 120;
      return s.size() <= kMost ? std::string(s) : fmt::format("{}… ({} bytes)", s.substr(0, kMost), s.size());
    }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(double x) const { return fmt::format("{}", x); }
    std::string operator()(uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(int64_t x) const { return fmt::format("{}", x); }
  };
  std::string text = std::visit(Show{}, value);
  for (char& c : text)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return text;
}

Result<Contents> read_gguf(const std::filesystem::path& path) {
  const auto file = GgufFile::open(path);
  RETURN_IF_ERROR(file);
  Contents c{.kind = fmt::format("GGUF version {}", file->header().version)};
  for (const auto& [key, value] : file->header().metadata) c.metadata.emplace_back(key, value_text(value));
  for (const auto& t : file->tensors()) {
    const BlockInfo* block = block_info(static_cast<uint32_t>(t.type));
    c.tensors.push_back(
        {std::string(t.name), block == nullptr ? "?" : std::string(block->name), t.shape, t.end - t.begin});
  }
  return c;
}

Result<Contents> read_safetensors(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  RETURN_IF_ERROR(file);
  Contents c{.kind = "safetensors"};
  for (const auto& [key, value] : file->header().metadata) c.metadata.emplace_back(key, value);
  for (const auto& t : file->tensors())
    c.tensors.push_back({t.name, std::string(name(t.type)), t.shape, t.end - t.begin});
  return c;
}

ordered_json to_json(const Contents& c) {
  ordered_json json = {{"kind", c.kind}, {"metadata", ordered_json::object()}, {"tensors", ordered_json::array()}};
  for (const auto& [key, value] : c.metadata) json["metadata"][key] = value;
  for (const auto& t : c.tensors)
    json["tensors"].push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
  return json;
}

std::string to_text(const Contents& c) {
  std::string text = c.kind + "\n";
  for (const auto& [key, value] : c.metadata) text += fmt::format("{} = {}\n", key, value);
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "TYPE", "SHAPE", "SIZE"}};
  int64_t bytes = 0;
  for (const auto& t : c.tensors) {
    rows.push_back({t.name, t.type, fmt::format("[{}]", fmt::join(t.shape, ", ")), bytes_text(t.bytes)});
    bytes += t.bytes;
  }
  return text + table(rows) + fmt::format("{} tensors, {}\n", c.tensors.size(), bytes_text(bytes));
}

}  // namespace

bool is_published_file(const std::filesystem::path& path) {
  return path.extension() == ".gguf" || path.extension() == ".safetensors";
}

Result<void> inspect_file(const std::filesystem::path& path, bool json) {
  const auto contents = path.extension() == ".gguf" ? read_gguf(path) : read_safetensors(path);
  RETURN_IF_ERROR(contents);
  if (json) return print("{}\n", to_json(*contents).dump(2, ' ', false, ordered_json::error_handler_t::replace));
  return print("{}", to_text(*contents));
}

}  // namespace onw::cli
