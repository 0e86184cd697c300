#include "tests/tiny_model.h"

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace onw::testing {
namespace {

// FNV-1a of "seed/name".
uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : fmt::format("{}/{}", seed, name)) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// The output of splitmix64 for a state.
uint64_t splitmix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t element_count(const TinyTensor& tensor) {
  int64_t count = 1;
  for (const int64_t n : tensor.shape) count *= n;
  return count;
}

Result<void> write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush()) return error(Code::io, "{}: cannot be written", path.string());
  return {};
}

// A safetensors file of FP32 tensors, in the order of the list.
std::string safetensors(const Golden& golden, const TinyChange& change) {
  nlohmann::ordered_json header;
  int64_t at = 0;
  for (const TinyTensor& tensor : golden.tensors) {
    const int64_t end = at + element_count(tensor) * static_cast<int64_t>(sizeof(float));
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  const std::string text = header.dump();
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<uint64_t>(text.size()));
  std::string file(length.data(), length.size());
  file += text;
  for (const TinyTensor& tensor : golden.tensors) {
    const std::vector<float> values = tiny_tensor(golden, tensor, change);
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return file;
}

}  // namespace

std::vector<float> draw_tensor(uint64_t seed, const TinyTensor& tensor) {
  const uint64_t key = stream_key(seed, tensor.name);
  const float step = std::ldexp(1.0f, tensor.exponent);
  std::vector<float> values(static_cast<size_t>(element_count(tensor)));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t z = splitmix64(key + (i + 1) * 0x9e3779b97f4a7c15u);
    const auto sum = static_cast<int32_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    const int32_t code = (sum - 131070) >> 8;
    values[i] = static_cast<float>(code) * step + static_cast<float>(tensor.offset);
  }
  return values;
}

std::vector<float> tiny_tensor(const Golden& golden, const TinyTensor& tensor, const TinyChange& change) {
  std::vector<float> values = draw_tensor(golden.seed, tensor);
  if (change) change(tensor, values);
  return values;
}

Result<void> write_tiny_model(const Golden& golden, const std::filesystem::path& folder, const TinyChange& change) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return error(Code::io, "{}: cannot be made: {}", folder.string(), failed.message());
  RETURN_IF_ERROR(write_file(folder / "config.json", golden.config));
  return write_file(folder / "model.safetensors", safetensors(golden, change));
}

}  // namespace onw::testing
