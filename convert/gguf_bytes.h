// Builds GGUF files for tests, byte by byte, so that each can be wrong in its own way.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace onw {

class GgufBytes {
 public:
  template <class T>
  GgufBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view s) {
    put<uint64_t>(s.size());
    bytes_.append(s);
    return *this;
  }
  GgufBytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes_.append("GGUF");
    return put(version).put(tensors).put(keys);
  }
  GgufBytes& key_u32(std::string_view key, uint32_t value) { return text(key).put<uint32_t>(4).put(value); }
  GgufBytes& key_f32(std::string_view key, float value) { return text(key).put<uint32_t>(6).put(value); }
  GgufBytes& key_bool(std::string_view key, bool value) { return text(key).put<uint32_t>(7).put<uint8_t>(value); }
  GgufBytes& key_text(std::string_view key, std::string_view value) { return text(key).put<uint32_t>(8).text(value); }
  GgufBytes& key_texts(std::string_view key, const std::vector<std::string>& values) {
    text(key).put<uint32_t>(9).put<uint32_t>(8).put<uint64_t>(values.size());
    for (const auto& v : values) text(v);
    return *this;
  }
  template <class T>
  GgufBytes& key_numbers(std::string_view key, uint32_t kind, const std::vector<T>& values) {
    text(key).put<uint32_t>(9).put(kind).template put<uint64_t>(values.size());
    for (const T v : values) put(v);
    return *this;
  }
  // Dimensions innermost first, as in the file.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).put<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const uint64_t n : dims) put(n);
    return put(type).put(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& data(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace onw
