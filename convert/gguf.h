// A GGUF file (versions 2 and 3), mapped: metadata and tensor table are read and checked, the data stays where it is.
// Format: github.com/ggml-org/ggml, docs/gguf.md. Every count and offset is a claim: checked before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "convert/block_type.h"

namespace onw {

// A list in the metadata. Numbers stay in the file (unaligned); strings are views into it.
struct GgufArray {
  uint32_t type = 0;  // GGUF's number of the element type
  int64_t count = 0;
  std::span<const std::byte> numbers;
  std::vector<std::string_view> strings;

  bool is_strings() const { return type == 8; }
  // Element i as a number, whatever its type (booleans are 0 and 1).
  double number(int64_t i) const;
  int64_t integer(int64_t i) const;
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  BlockType type = BlockType::f32;  // may be one that only block_info knows
  std::vector<int64_t> shape;       // outermost first, as everywhere in onw; the file has it the other way round
  int64_t begin = 0;                // in the file
  int64_t end = 0;
};

struct GgufHeader {
  uint32_t version = 0;
  int64_t alignment = 32;
  int64_t data_begin = 0;
  std::map<std::string_view, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // in the file's order
};

// The result points into `file`. `where` names it in errors. Errors: bad_format, truncated_file, unsupported.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view where);

class GgufFile {
 public:
  static Result<GgufFile> open(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }
  const GgufTensor* find(std::string_view name) const;
  std::span<const std::byte> bytes(const GgufTensor& tensor) const {
    return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  }

  // Metadata of that type; empty where the key is absent or of another type. integer takes every whole number.
  const GgufValue* value(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  const GgufArray* array(std::string_view key) const;

  // "llama": general.architecture.
  std::string_view architecture() const { return string("general.architecture").value_or(""); }

 private:
  MappedFile file_;
  GgufHeader header_;
  std::map<std::string_view, size_t> by_name_;
};

}  // namespace onw
