#include "convert/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/lfs_pointer.h"

namespace onw {
namespace {

constexpr int64_t kMaxAlignment = 1 << 16;  // writers use 32; a page or two is plausible
constexpr uint32_t kMaxDims = 4;

// The types of metadata values, by their number in the file.
enum Kind : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kKinds };
constexpr std::array<int, kKinds> kKindBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

using Number = std::variant<uint64_t, int64_t, double, bool>;

Number number_at(uint32_t kind, const std::byte* p) {
  switch (kind) {
    case kU8:
      return uint64_t{load<uint8_t>(p)};
    case kI8:
      return int64_t{load<int8_t>(p)};
    case kU16:
      return uint64_t{load<uint16_t>(p)};
    case kI16:
      return int64_t{load<int16_t>(p)};
    case kU32:
      return uint64_t{load<uint32_t>(p)};
    case kI32:
      return int64_t{load<int32_t>(p)};
    case kF32:
      return double{load<float>(p)};
    case kBool:
      return load<uint8_t>(p) != 0;
    case kU64:
      return load<uint64_t>(p);
    case kI64:
      return load<int64_t>(p);
    default:
      return load<double>(p);
  }
}

// Reads forward through the mapped file; after a failure the error says where.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, std::string_view where) : file_(file), where_(where) {}

  int64_t at() const { return at_; }
  int64_t left() const { return static_cast<int64_t>(file_.size()) - at_; }
  std::string_view where() const { return where_; }

  Result<std::span<const std::byte>> take(uint64_t bytes, std::string_view what) {
    if (bytes > static_cast<uint64_t>(left()))
      return error(Code::truncated_file,
                   "{}: {} at byte {} needs {} bytes, the file has {} left of {}. Download it again", where_, what, at_,
                   bytes, left(), file_.size());
    const auto taken = file_.subspan(at_, bytes);
    at_ += static_cast<int64_t>(bytes);
    return taken;
  }

  template <class T>
  Result<T> read(std::string_view what) {
    const auto bytes = take(sizeof(T), what);
    RETURN_IF_ERROR(bytes);
    return load<T>(bytes->data());
  }

  Result<std::string_view> read_string(std::string_view what) {
    const auto length = read<uint64_t>(what);
    RETURN_IF_ERROR(length);
    const auto bytes = take(*length, what);
    RETURN_IF_ERROR(bytes);
    return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }

 private:
  std::span<const std::byte> file_;
  std::string_view where_;
  int64_t at_ = 0;
};

Result<GgufArray> read_array(Cursor& in, std::string_view key) {
  GgufArray array;
  const auto type = in.read<uint32_t>(key);
  RETURN_IF_ERROR(type);
  const auto count = in.read<uint64_t>(key);
  RETURN_IF_ERROR(count);
  if (*type >= kKinds || *type == kArray)
    return error(Code::unsupported,
                 "{}: '{}' is a list of type {}, known are numbers, booleans and strings. Convert the model again",
                 in.where(), key, *type);
  const uint64_t least = *type == kString ? 8 : kKindBytes[*type];  // bytes that an element takes
  const auto bytes = checked_mul(*count, least);
  if (!bytes || *bytes > static_cast<uint64_t>(in.left()))
    return error(Code::truncated_file,
                 "{}: '{}' claims {} elements of at least {} bytes, the file has {} bytes left. Download it again",
                 in.where(), key, *count, least, in.left());
  array.type = *type;
  array.count = static_cast<int64_t>(*count);
  if (*type != kString) {
    const auto numbers = in.take(*bytes, key);
    RETURN_IF_ERROR(numbers);
    array.numbers = *numbers;
    return array;
  }
  array.strings.reserve(*count);
  for (uint64_t i = 0; i < *count; ++i) {
    const auto text = in.read_string(key);
    RETURN_IF_ERROR(text);
    array.strings.push_back(*text);
  }
  return array;
}

Result<GgufValue> read_value(Cursor& in, std::string_view key) {
  const auto kind = in.read<uint32_t>(key);
  RETURN_IF_ERROR(kind);
  if (*kind == kString) {
    const auto text = in.read_string(key);
    RETURN_IF_ERROR(text);
    return GgufValue(*text);
  }
  if (*kind == kArray) {
    auto array = read_array(in, key);
    RETURN_IF_ERROR(array);
    return GgufValue(std::move(*array));
  }
  if (*kind >= kKinds)
    return error(Code::bad_format, "{}: '{}' has the value type {}, the format has 0 to {}. The file is damaged",
                 in.where(), key, *kind, kKinds - 1);
  const auto bytes = in.take(kKindBytes[*kind], key);
  RETURN_IF_ERROR(bytes);
  return std::visit([](auto n) { return GgufValue(n); }, number_at(*kind, bytes->data()));
}

// Name, dimensions, type and offset; `begin` is still relative to the data.
Result<GgufTensor> read_tensor(Cursor& in, int64_t alignment) {
  GgufTensor tensor;
  const auto name = in.read_string("a tensor's name");
  RETURN_IF_ERROR(name);
  tensor.name = *name;
  const auto dims = in.read<uint32_t>(*name);
  RETURN_IF_ERROR(dims);
  if (*dims < 1 || *dims > kMaxDims)
    return error(Code::bad_format, "{}: '{}' has {} dimensions, 1 to {} are possible. The file is damaged", in.where(),
                 *name, *dims, kMaxDims);
  std::optional<int64_t> values = 1;
  for (uint32_t i = 0; i < *dims; ++i) {
    const auto n = in.read<uint64_t>(*name);
    RETURN_IF_ERROR(n);
    if (*n < 1 || *n > INT64_MAX)
      return error(Code::bad_format, "{}: '{}' has a dimension of {}, 1 to 2^63-1 are possible. The file is damaged",
                   in.where(), *name, *n);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(*n));
    if (values) values = checked_mul(*values, static_cast<int64_t>(*n));
  }
  const auto number = in.read<uint32_t>(*name);
  RETURN_IF_ERROR(number);
  const BlockInfo* info = block_info(*number);
  if (info == nullptr)
    return error(Code::unsupported,
                 "{}: '{}' has the unknown type {}. Take a file with Q4_K_M, Q8_0 or another common type", in.where(),
                 *name, *number);
  tensor.type = static_cast<BlockType>(*number);
  if (tensor.shape.back() % info->values != 0)
    return error(Code::bad_format,
                 "{}: '{}' has rows of {} values, its type {} needs a multiple of {}. The file is damaged", in.where(),
                 *name, tensor.shape.back(), info->name, info->values);
  const auto bytes = values ? checked_mul(*values / info->values, int64_t{info->bytes}) : std::nullopt;
  const auto offset = in.read<uint64_t>(*name);
  RETURN_IF_ERROR(offset);
  const auto end = bytes && *offset <= INT64_MAX ? checked_add(*bytes, static_cast<int64_t>(*offset)) : std::nullopt;
  if (!end)
    return error(Code::bad_format, "{}: '{}' of shape [{}] at offset {} ends beyond 2^63. The file is damaged",
                 in.where(), *name, fmt::join(tensor.shape, ", "), *offset);
  if (*offset % alignment != 0)
    return error(Code::bad_format, "{}: '{}' begins at offset {}, no multiple of the alignment {}. The file is damaged",
                 in.where(), *name, *offset, alignment);
  tensor.begin = static_cast<int64_t>(*offset);
  tensor.end = *end;
  return tensor;
}

Result<int64_t> alignment_of(const GgufHeader& header, std::string_view where) {
  const auto it = header.metadata.find("general.alignment");
  if (it == header.metadata.end()) return 32;
  const uint64_t* n = std::get_if<uint64_t>(&it->second);
  if (n == nullptr || !std::has_single_bit(*n) || *n > kMaxAlignment)
    return error(Code::bad_format, "{}: general.alignment is {}, expected a power of two up to {}. The file is damaged",
                 where, n == nullptr ? "not an unsigned number" : std::to_string(*n), kMaxAlignment);
  return static_cast<int64_t>(*n);
}

// Files from before Q2_0 was settled hold groups of 128 under its number, in fewer bytes. Their tensors would overlap.
// As old ones they must follow each other without gaps, so that a damaged file is not taken for one.
void settle_q2_0(GgufHeader& header, int64_t file_bytes) {
  std::vector<GgufTensor*> order;
  for (GgufTensor& t : header.tensors) order.push_back(&t);
  std::ranges::sort(order, {}, &GgufTensor::begin);
  const auto next = [&](size_t i) {
    return i + 1 < order.size() ? order[i + 1]->begin : std::max<int64_t>(file_bytes - header.data_begin, 0);
  };
  const BlockInfo &settled = block_info(BlockType::q2_0), &old = block_info(BlockType::pq2_0);
  const auto old_bytes = [&](const GgufTensor& t) {
    return (t.end - t.begin) / settled.bytes * settled.values / old.values * old.bytes;
  };
  bool is_old = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const GgufTensor& t = *order[i];
    if (t.type != BlockType::q2_0) continue;
    const int64_t gap = next(i) - t.begin - old_bytes(t);
    if (t.shape.back() % old.values != 0 || gap < 0 || gap >= header.alignment) return;
    is_old = is_old || t.end > next(i);
  }
  if (!is_old) return;
  for (GgufTensor* t : order) {
    if (t->type != BlockType::q2_0) continue;
    t->end = t->begin + old_bytes(*t);
    t->type = BlockType::pq2_0;
  }
}

Result<void> place_tensors(GgufHeader& header, int64_t file_bytes, std::string_view where) {
  for (GgufTensor& t : header.tensors) {
    const auto end = checked_add(t.end, header.data_begin);
    if (!end || *end > file_bytes)
      return error(Code::truncated_file,
                   "{}: '{}' ends at byte {} of the data, the file has {} there ({} in all). Download it again", where,
                   t.name, t.end, std::max<int64_t>(file_bytes - header.data_begin, 0), file_bytes);
    t.begin += header.data_begin;
    t.end = *end;
  }
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& t : header.tensors) order.push_back(&t);
  std::ranges::sort(order, {}, &GgufTensor::begin);
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->begin < order[i - 1]->end)
      return error(Code::bad_format, "{}: '{}' begins at byte {}, inside '{}', which ends at {}. The file is damaged",
                   where, order[i]->name, order[i]->begin, order[i - 1]->name, order[i - 1]->end);
  return {};
}

Result<uint32_t> read_version(Cursor& in, std::span<const std::byte> file) {
  if (is_lfs_pointer(file))
    return error(Code::bad_format,
                 "{}: a Git LFS pointer of {} bytes, not the model. Fetch the real file: git lfs pull, or onw pull",
                 in.where(), file.size());
  const auto magic = in.read<uint32_t>("the magic");
  RETURN_IF_ERROR(magic);
  if (*magic != 0x46554747)
    return error(Code::bad_format, "{}: does not begin with 'GGUF'. Is it a GGUF file?", in.where());
  const auto version = in.read<uint32_t>("the version");
  RETURN_IF_ERROR(version);
  if (*version == 2 || *version == 3) return *version;
  if ((*version & 0xffff) == 0)
    return error(Code::unsupported, "{}: big-endian. Take a little-endian GGUF file", in.where());
  return error(Code::unsupported, "{}: GGUF version {}, versions 2 and 3 are read. Convert the model again", in.where(),
               *version);
}

}  // namespace

double GgufArray::number(int64_t i) const {
  return std::visit([](auto n) { return static_cast<double>(n); },
                    number_at(type, numbers.data() + i * kKindBytes[type]));
}

int64_t GgufArray::integer(int64_t i) const {
  const Number n = number_at(type, numbers.data() + i * kKindBytes[type]);
  if (const double* x = std::get_if<double>(&n)) return std::fabs(*x) < 0x1p62 ? static_cast<int64_t>(*x) : 0;
  return std::visit([](auto x) { return static_cast<int64_t>(x); }, n);
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view where) {
  Cursor in(file, where);
  GgufHeader header;
  const auto version = read_version(in, file);
  RETURN_IF_ERROR(version);
  header.version = *version;
  const auto tensors = in.read<uint64_t>("the number of tensors");
  RETURN_IF_ERROR(tensors);
  const auto keys = in.read<uint64_t>("the number of metadata keys");
  RETURN_IF_ERROR(keys);
  // A key takes at least 13 bytes, a tensor at least 32: counts that the file cannot hold fail here, not in an
  // allocator.
  if (*keys > static_cast<uint64_t>(in.left()) / 13 || *tensors > static_cast<uint64_t>(in.left()) / 32)
    return error(Code::bad_format, "{}: claims {} metadata keys and {} tensors in {} bytes. The file is damaged", where,
                 *keys, *tensors, file.size());
  for (uint64_t i = 0; i < *keys; ++i) {
    const auto key = in.read_string("a metadata key");
    RETURN_IF_ERROR(key);
    auto value = read_value(in, *key);
    RETURN_IF_ERROR(value);
    if (!header.metadata.emplace(*key, std::move(*value)).second)
      return error(Code::bad_format, "{}: the metadata key '{}' occurs twice. The file is damaged", where, *key);
  }
  const auto alignment = alignment_of(header, where);
  RETURN_IF_ERROR(alignment);
  header.alignment = *alignment;
  for (uint64_t i = 0; i < *tensors; ++i) {
    auto tensor = read_tensor(in, *alignment);
    RETURN_IF_ERROR(tensor);
    header.tensors.push_back(std::move(*tensor));
  }
  header.data_begin = round_up(in.at(), *alignment);
  settle_q2_0(header, static_cast<int64_t>(file.size()));
  RETURN_IF_ERROR(place_tensors(header, static_cast<int64_t>(file.size()), where));
  return header;
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  RETURN_IF_ERROR(file);
  auto header = parse_gguf(file->bytes(), path.string());
  RETURN_IF_ERROR(header);
  GgufFile opened;
  opened.file_ = std::move(*file);
  opened.header_ = std::move(*header);
  for (size_t i = 0; i < opened.header_.tensors.size(); ++i) {
    const std::string_view name = opened.header_.tensors[i].name;
    if (!opened.by_name_.emplace(name, i).second)
      return error(Code::bad_format, "{}: the tensor '{}' occurs twice. The file is damaged", path.string(), name);
  }
  return opened;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &header_.tensors[it->second];
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto it = header_.metadata.find(key);
  return it == header_.metadata.end() ? nullptr : &it->second;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const uint64_t* n = std::get_if<uint64_t>(v); n != nullptr && *n <= INT64_MAX) return static_cast<int64_t>(*n);
  if (const int64_t* n = std::get_if<int64_t>(v)) return *n;
  return std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const double* x = std::get_if<double>(v)) return *x;
  const auto n = integer(key);
  return n ? std::optional<double>(static_cast<double>(*n)) : std::nullopt;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = value(key);
  if (const bool* b = v == nullptr ? nullptr : std::get_if<bool>(v)) return *b;
  return std::nullopt;
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* v = value(key);
  if (const auto* s = v == nullptr ? nullptr : std::get_if<std::string_view>(v)) return *s;
  return std::nullopt;
}

const GgufArray* GgufFile::array(std::string_view key) const {
  const GgufValue* v = value(key);
  return v == nullptr ? nullptr : std::get_if<GgufArray>(v);
}

}  // namespace onw
