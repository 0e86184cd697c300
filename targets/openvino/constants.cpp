#include "targets/openvino/constants.h"

#include <algorithm>

namespace onw::openvino {
namespace {

constexpr size_t kAlignment = 64;
// Addresses for what is not in a file: they cost nothing until they are used.
constexpr size_t kMostMemory = size_t{64} << 30;
constexpr size_t kMemoryPiece = size_t{1} << 20;

size_t pages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

Result<Constants> Constants::create(const WeightSet& weights, bool copies) {
  Constants c;
  c.owner_ = weights.owner;
  if (!copies)
    for (const auto& [path, bytes] : weights.files) {
      c.files_.push_back({path, bytes, c.memory_begin_});
      c.memory_begin_ += pages(bytes.size());
    }
  auto range = AddressRange::reserve(c.memory_begin_ + kMostMemory);
  RETURN_IF_ERROR(range);
  c.range_ = std::move(*range);
  for (size_t i = 0; i < c.files_.size(); ++i)
    RETURN_IF_ERROR(c.range_.map_file(weights.files[i].path, c.files_[i].at, c.files_[i].bytes.size()));
  return c;
}

std::vector<Constants::MappedAt> Constants::files() const {
  std::vector<MappedAt> all;
  for (const File& file : files_)
    all.push_back({file.path, static_cast<int64_t>(file.at), static_cast<int64_t>(file.bytes.size())});
  return all;
}

Result<int64_t> Constants::append(std::span<const std::byte> bytes) {
  const size_t at = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes.size() > kMostMemory - at) return error(Code::out_of_memory, "the constants of a graph take over 64 GiB");
  if (at + bytes.size() > committed_) {
    const size_t more = (at + bytes.size() - committed_ + kMemoryPiece - 1) / kMemoryPiece * kMemoryPiece;
    RETURN_IF_ERROR(range_.add_memory(memory_begin_ + committed_, more));
    committed_ += more;
  }
  std::ranges::copy(bytes, range_.data() + memory_begin_ + at);
  used_ = at + bytes.size();
  return static_cast<int64_t>(memory_begin_ + at);
}

Result<int64_t> Constants::place(std::span<const std::byte> weight) {
  for (const File& file : files_)
    if (weight.data() >= file.bytes.data() && weight.data() + weight.size() <= file.bytes.data() + file.bytes.size())
      return static_cast<int64_t>(file.at) + (weight.data() - file.bytes.data());
  if (const auto found = copied_.find(weight.data()); found != copied_.end()) return found->second;
  const auto at = append(weight);
  RETURN_IF_ERROR(at);
  copied_[weight.data()] = *at;
  return at;
}

Result<int64_t> Constants::add(std::span<const std::byte> bytes) {
  std::string key(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto found = small_.find(key); found != small_.end()) return found->second;
  const auto at = append(bytes);
  RETURN_IF_ERROR(at);
  small_[std::move(key)] = *at;
  return at;
}

}  // namespace onw::openvino
