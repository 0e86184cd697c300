#include "store/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/lfs_pointer.h"
#include "graph/json.h"

namespace onw {
namespace {

using nlohmann::json;

struct ElementInfo {
  ElementType type;
  std::string_view name;
  int bytes;
};

constexpr std::array kElements = {
    ElementInfo{ElementType::boolean, "BOOL", 1},    ElementInfo{ElementType::u8, "U8", 1},
    ElementInfo{ElementType::i8, "I8", 1},           ElementInfo{ElementType::f8_e4m3, "F8_E4M3", 1},
    ElementInfo{ElementType::f8_e5m2, "F8_E5M2", 1}, ElementInfo{ElementType::i16, "I16", 2},
    ElementInfo{ElementType::u16, "U16", 2},         ElementInfo{ElementType::f16, "F16", 2},
    ElementInfo{ElementType::bf16, "BF16", 2},       ElementInfo{ElementType::i32, "I32", 4},
    ElementInfo{ElementType::u32, "U32", 4},         ElementInfo{ElementType::f32, "F32", 4},
    ElementInfo{ElementType::i64, "I64", 8},         ElementInfo{ElementType::u64, "U64", 8},
    ElementInfo{ElementType::f64, "F64", 8},
};

Result<std::vector<int64_t>> non_negative_list(const json& entry, const char* key, std::string_view where,
                                               std::string_view tensor) {
  const auto it = entry.find(key);
  if (it == entry.end() || !it->is_array())
    return error(Code::bad_format, "{}: '{}' has no list '{}'. The file is damaged", where, tensor, key);
  std::vector<int64_t> list;
  for (const json& item : *it) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX)
      return error(Code::bad_format,
                   "{}: '{}' has {} in '{}', expected a whole number from 0 to 2^63-1. The file is damaged", where,
                   tensor, dump_json(item, -1).substr(0, 40), key);
    list.push_back(item.get<int64_t>());
  }
  return list;
}

// Shape times element size; empty where that overflows.
std::optional<int64_t> bytes_of(const std::vector<int64_t>& shape, ElementType type) {
  std::optional<int64_t> bytes = bytes_of(type);
  for (const int64_t n : shape)
    if (bytes) bytes = checked_mul(*bytes, n);
  return bytes;
}

Result<SafeTensor> parse_entry(const std::string& tensor, const json& entry, int64_t data_begin,
                               std::string_view where) {
  if (!entry.is_object())
    return error(Code::bad_format, "{}: '{}' is not an object in the header. The file is damaged", where, tensor);
  const auto dtype = find_string(entry, "dtype");
  if (!dtype) return error(Code::bad_format, "{}: '{}' has no dtype. The file is damaged", where, tensor);
  const auto type = element_type(*dtype);
  if (!type)
    return error(Code::unsupported,
                 "{}: '{}' has dtype '{}', known are BOOL, U8…U64, I8…I64, F8_E4M3, F8_E5M2, F16, BF16, F32, F64. "
                 "Convert the checkpoint to one of them",
                 where, tensor, dtype->substr(0, 40));
  auto shape = non_negative_list(entry, "shape", where, tensor);
  RETURN_IF_ERROR(shape);
  const auto offsets = non_negative_list(entry, "data_offsets", where, tensor);
  RETURN_IF_ERROR(offsets);
  if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
    return error(Code::bad_format, "{}: '{}' needs data_offsets [begin, end] with begin <= end. The file is damaged",
                 where, tensor);
  const auto expected = bytes_of(*shape, *type);
  const int64_t actual = (*offsets)[1] - (*offsets)[0];
  if (!expected || *expected != actual)
    return error(Code::bad_format,
                 "{}: '{}' of dtype {} and shape [{}] needs {} bytes, its data_offsets give {}. The file is damaged",
                 where, tensor, *dtype, fmt::join(*shape, ", "),
                 expected ? std::to_string(*expected) : "more than 2^63", actual);
  const auto begin = checked_add((*offsets)[0], data_begin);
  const auto end = checked_add((*offsets)[1], data_begin);
  if (!begin || !end) return error(Code::bad_format, "{}: '{}' ends beyond 2^63. The file is damaged", where, tensor);
  return SafeTensor{tensor, *type, std::move(*shape), *begin, *end};
}

// The format allows neither holes nor overlap, and nothing after the last tensor.
Result<void> check_cover(const SafetensorsHeader& header, int64_t file_bytes, std::string_view where) {
  int64_t at = header.data_begin;
  for (const SafeTensor& t : header.tensors) {
    if (t.begin != at)
      return error(Code::bad_format,
                   "{}: '{}' begins at byte {}, but the tensor before it ends at {}: {}. The file is damaged", where,
                   t.name, t.begin, at, t.begin < at ? "they overlap" : "there is a gap");
    at = t.end;
  }
  if (at > file_bytes)
    return error(Code::truncated_file, "{}: '{}' ends at byte {}, the file has {}. Download it again", where,
                 header.tensors.back().name, at, file_bytes);
  if (at < file_bytes)
    return error(Code::bad_format, "{}: the tensors end at byte {}, the file has {}. Download it again", where, at,
                 file_bytes);
  return {};
}

}  // namespace

std::string_view name(ElementType type) { return kElements[static_cast<size_t>(type)].name; }

std::optional<ElementType> element_type(std::string_view name) {
  const auto found = std::ranges::find(kElements, name, &ElementInfo::name);
  if (found == kElements.end()) return std::nullopt;
  return found->type;
}

int64_t bytes_of(ElementType type) { return kElements[static_cast<size_t>(type)].bytes; }

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  if (is_lfs_pointer(file))
    return error(Code::bad_format,
                 "{}: a Git LFS pointer of {} bytes, not the tensors. Fetch the real file: git lfs pull, or onw pull",
                 where, file.size());
  const int64_t file_bytes = static_cast<int64_t>(file.size());
  uint64_t length = 0;
  if (file.size() < sizeof length)
    return error(Code::truncated_file, "{}: {} bytes, a safetensors file has at least 10. Download it again", where,
                 file_bytes);
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader))
    return error(Code::bad_format, "{}: a header of {} bytes, at most {} are read. Is it a safetensors file?", where,
                 length, kMaxSafetensorsHeader);
  if (length > file.size() - sizeof length)
    return error(Code::truncated_file, "{}: the header ends at byte {}, the file has {}. Download it again", where,
                 length + sizeof length, file_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  const auto root = parse_json(text, where);
  RETURN_IF_ERROR(root);
  if (!root->is_object())
    return error(Code::bad_format, "{}: the header is not a JSON object. Is it a safetensors file?", where);

  SafetensorsHeader header;
  header.data_begin = static_cast<int64_t>(length + sizeof length);
  for (const auto& [key, entry] : root->items()) {
    if (key == "__metadata__") {
      if (!entry.is_object())
        return error(Code::bad_format, "{}: __metadata__ is not an object. The file is damaged", where);
      for (const auto& [name, value] : entry.items())
        if (value.is_string()) header.metadata[name] = value.get<std::string>();
      continue;
    }
    auto tensor = parse_entry(key, entry, header.data_begin, where);
    RETURN_IF_ERROR(tensor);
    header.tensors.push_back(std::move(*tensor));
  }
  // Empty tensors share their begin with the next one: sorting by end as well keeps them in front of it.
  std::ranges::sort(header.tensors, [](const SafeTensor& a, const SafeTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  RETURN_IF_ERROR(check_cover(header, file_bytes, where));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  RETURN_IF_ERROR(file);
  auto header = parse_safetensors(file->bytes(), path.string());
  RETURN_IF_ERROR(header);
  SafetensorsFile opened;
  opened.file_ = std::move(*file);
  opened.header_ = std::move(*header);
  for (size_t i = 0; i < opened.header_.tensors.size(); ++i) opened.by_name_[opened.header_.tensors[i].name] = i;
  return opened;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &header_.tensors[it->second];
}

}  // namespace onw
