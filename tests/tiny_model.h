// Tiny models with drawn parameters: the same bits that tools/goldens/draw.py draws, as a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tests/golden.h"

namespace onw::testing {

// The parameter in row-major order. The recipe stands in tools/goldens/draw.py.
std::vector<float> draw_tensor(uint64_t seed, const TinyTensor& tensor);

// Makes `folder` (which need not exist) a Hugging Face model: the golden's config.json, and model.safetensors in FP32.
// Errors: io.
Result<void> write_tiny_model(const Golden& golden, const std::filesystem::path& folder);

}  // namespace onw::testing
