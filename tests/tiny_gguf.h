// Tiny models as GGUF files, as llama.cpp's converter writes them from a Hugging Face folder: its names, its keys, rows
// of q and k in pairs where it pairs them, norms plus one, value heads tiled.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "tests/golden.h"

namespace onw::testing {

struct TinyGguf {
  bool pair_rows = true;       // false: a file that forgot to, for llama and granite
  bool tile_heads = true;      // the same for value heads of qwen3_5
  bool fused_experts = false;  // gates over ups in one stack, as some converters write it
};

// llama, qwen2, qwen3, qwen3_moe, gpt_oss, granite, gemma3, lfm2, lfm2_moe, qwen3_5 and qwen3_5_moe. Gemma's local
// theta, pattern and query scalar are in no such file: the golden's config must have the published ones. Errors: io,
// unsupported for another family.
Result<void> write_tiny_gguf(const Golden& golden, const std::filesystem::path& path, const TinyGguf& how = {});

}  // namespace onw::testing
