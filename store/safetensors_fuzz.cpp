// Any bytes as a safetensors file: what is accepted must lie within the bytes.
#include "store/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = onw::parse_safetensors(file, "fuzz");
  if (!header) return 0;
  volatile unsigned sum = 0;
  for (const onw::SafeTensor& t : header->tensors)
    for (const std::byte b : file.subspan(t.begin, t.end - t.begin)) sum = sum + static_cast<unsigned>(b);
  return 0;
}
