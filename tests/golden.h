// Stored logits of the publishers' implementation (tools/goldens/), and what a test needs to compute the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace onw::testing {

// A parameter of a tiny model: how tools/goldens/draw.py draws it. value = code * 2^exponent + offset.
struct TinyTensor {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
  int exponent = 0;
  int offset = 0;
};

struct Golden {
  std::string name;    // "qwen3-g64"
  std::string family;  // "qwen3"; variants of a family have names of their own: "llama-plain"
  std::string width;   // odd (no integer kernel takes it), g64 or g128
  std::string config;  // config.json
  uint64_t seed = 0;
  std::vector<TinyTensor> tensors;
  std::vector<int64_t> segments;  // lengths for an uneven prefill, to be repeated; the last is cut
  std::vector<int32_t> ids;       // [T]
  int64_t vocabulary = 0;
  std::vector<float> logits;  // [T, vocabulary], of one prefill in FP32
};

// Of a real model, per position: the log of the sum of all exponentials, and the largest logits with their ids.
struct RealGolden {
  std::string name;            // "smollm2"
  std::string model_sha256;    // of the GGUF file
  std::vector<int32_t> ids;    // [T]
  std::vector<int64_t> parts;  // sequences that `ids` is made of, one after another, by length
  int64_t top = 0;
  std::vector<float> log_sum_exp;  // [T]
  std::vector<int32_t> top_ids;    // [T, top]
  std::vector<float> top_logits;   // [T, top], descending
  std::vector<float> noise;        // [T], how far these are from the same in FP64
};

// Errors: what the reader of safetensors reports, bad_format where a part is missing.
Result<Golden> read_golden(const std::filesystem::path& path);
Result<RealGolden> read_real_golden(const std::filesystem::path& path);

// The tiny goldens in `folder`, by name.
std::vector<std::filesystem::path> golden_paths(const std::filesystem::path& folder);

// max |a - b| / max |b|; infinite where the sizes differ or a number is not finite.
double relative_error(std::span<const float> ours, std::span<const float> theirs);

}  // namespace onw::testing
