// Tiny models with drawn parameters: the same bits that tools/goldens/draw.py draws, as a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tests/golden.h"

namespace onw::testing {

// The parameter in row-major order. The recipe stands in tools/goldens/draw.py.
std::vector<float> draw_tensor(uint64_t seed, const TinyTensor& tensor);

// What a test changes in a drawn parameter, for cases that random numbers do not give.
using TinyChange = std::function<void(const TinyTensor& tensor, std::vector<float>& values)>;

// draw_tensor of the golden's seed, changed.
std::vector<float> tiny_tensor(const Golden& golden, const TinyTensor& tensor, const TinyChange& change = {});

// Makes `folder` (which need not exist) a Hugging Face model: the golden's config.json, and model.safetensors in FP32.
// Errors: io.
Result<void> write_tiny_model(const Golden& golden, const std::filesystem::path& folder, const TinyChange& change = {});

}  // namespace onw::testing
