// Any bytes as a GGUF file: what is accepted must lie within the bytes, and its blocks decode.
#include <vector>

#include "convert/gguf.h"

namespace {

void read_all(const onw::GgufArray& array) {
  volatile double sum = 0;
  for (int64_t i = 0; i < array.count && !array.is_strings(); ++i)
    sum = sum + array.number(i) + static_cast<double>(array.integer(i));
  for (const std::string_view s : array.strings) sum = sum + static_cast<double>(std::string(s).size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = onw::parse_gguf(file, "fuzz");
  if (!header) return 0;
  for (const auto& [key, value] : header->metadata)
    if (const auto* array = std::get_if<onw::GgufArray>(&value)) read_all(*array);
  std::vector<float> values;
  for (const onw::GgufTensor& t : header->tensors) {
    const auto bytes = file.subspan(t.begin, t.end - t.begin);
    const onw::BlockInfo& info = onw::block_info(t.type);
    if (!info.readable) continue;
    values.resize(bytes.size() / info.bytes * info.values);
    onw::dequantise_blocks(t.type, bytes, values.data());
  }
  return 0;
}
