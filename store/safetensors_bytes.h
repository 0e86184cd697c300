// Builds safetensors files for tests.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

// A whole file: the length of the header, the header, then the data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

// Tensors one after another; the header is written when the file is.
class SafetensorsBytes {
 public:
  SafetensorsBytes& add(std::string_view name, std::string_view dtype, const std::vector<int64_t>& shape,
                        std::string_view data) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header_.empty() ? "" : ",",
                           name, dtype, fmt::join(shape, ","), data_.size(), data_.size() + data.size());
    data_.append(data);
    return *this;
  }
  SafetensorsBytes& add_f32(std::string_view name, const std::vector<int64_t>& shape, std::span<const float> values) {
    return add(name, "F32", shape, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  std::string bytes() const { return safetensors_bytes("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace onw
