// A safetensors file, mapped: the header is read and checked, the data stays where it is.
// Format: 8 bytes of header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, then the data.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "store/element_type.h"

namespace onw {

// Headers beyond this are refused (the reference implementation has the same limit).
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

struct SafeTensor {
  std::string name;
  ElementType type = ElementType::u8;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the file, not in its data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  // by ascending begin: they cover the data without gap or overlap
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;
};

// Checks everything that the header claims against itself and against the number of bytes there are.
// `where` names the file in errors. Errors: bad_format, truncated_file, unsupported (an unknown dtype).
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view where);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::vector<SafeTensor>& tensors() const { return header_.tensors; }
  const SafetensorsHeader& header() const { return header_; }
  const MappedFile& file() const { return file_; }
  const SafeTensor* find(std::string_view name) const;  // null where there is none
  std::span<const std::byte> bytes(const SafeTensor& tensor) const {
    return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string_view, size_t, std::less<>> by_name_;  // views into header_, whose strings never move
};

}  // namespace onw
