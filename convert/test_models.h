// A tiny Llama for the tests of this room, as a Hugging Face folder and as a GGUF file with the same values.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/temp_folder.h"
#include "convert/gguf_bytes.h"
#include "store/safetensors_bytes.h"

namespace onw::testing {

inline constexpr int kTinyHidden = 64, kTinyInner = 96, kTinyVocabulary = 40, kTinyHeads = 4, kTinyKvHeads = 2,
                     kTinyHeadDim = 16;

struct TinyWeight {
  std::string hf, gguf, ours;
  std::vector<int64_t> shape;
  bool paired = false;  // GGUF stores its rows in pairs
};

inline std::vector<TinyWeight> tiny_weights(bool head) {
  const int h = kTinyHidden, q = kTinyHeads * kTinyHeadDim, kv = kTinyKvHeads * kTinyHeadDim;
  std::vector<TinyWeight> all = {
      {"model.embed_tokens.weight", "token_embd.weight", "embed", {kTinyVocabulary, h}},
      {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", "layers.0.attn_norm", {h}},
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", "layers.0.attn.q", {q, h}, true},
      {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", "layers.0.attn.k", {kv, h}, true},
      {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", "layers.0.attn.v", {kv, h}},
      {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", "layers.0.attn.o", {h, q}},
      {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", "layers.0.mlp_norm", {h}},
      {"model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", "layers.0.mlp.gate", {kTinyInner, h}},
      {"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", "layers.0.mlp.up", {kTinyInner, h}},
      {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", "layers.0.mlp.down", {h, kTinyInner}},
      {"model.norm.weight", "output_norm.weight", "norm", {h}}};
  if (head) all.push_back({"lm_head.weight", "output.weight", "head", {kTinyVocabulary, h}});
  return all;
}

// Values of BF16 precision, so that BF16, F16 and F32 files hold the same.
inline std::vector<float> tiny_values(const TinyWeight& w) {
  size_t n = 1, seed = std::hash<std::string>()(w.ours) % 1000;
  for (const int64_t s : w.shape) n *= static_cast<size_t>(s);
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = bf16_to_float(float_to_bf16(std::sin(static_cast<float>(i * 37 + seed)) * 0.25f)) +
                (w.shape.size() == 1 ? 1.0f : 0.0f);
  return values;
}

inline std::string tiny_config(const std::string& more = "") {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": 1,)"
      R"( "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {}, "rms_norm_eps": 1e-5,)"
      R"( "max_position_embeddings": 128, "rope_theta": 10000.0, "eos_token_id": 7{}}})",
      kTinyHidden, kTinyInner, kTinyHeads, kTinyKvHeads, kTinyHeadDim, kTinyVocabulary, more);
}

inline std::filesystem::path write_tiny_folder(const TempFolder& folder, const std::string& name, bool head = false,
                                               const std::string& more = "") {
  folder.write(name + "/config.json", tiny_config(more));
  SafetensorsBytes file;
  for (const TinyWeight& w : tiny_weights(head)) file.add_f32(w.hf, w.shape, tiny_values(w));
  folder.write(name + "/model.safetensors", file.bytes());
  return folder / name;
}

// Rows of q and k as GGUF files of Llama hold them: (i, i + d/2) of a head become neighbours.
inline std::vector<float> paired_rows(const TinyWeight& w) {
  const auto values = tiny_values(w);
  if (!w.paired) return values;
  std::vector<float> out(values.size());
  const int64_t columns = w.shape[1], half = kTinyHeadDim / 2;
  for (int64_t r = 0; r < w.shape[0]; ++r) {
    const int64_t head = r / kTinyHeadDim, i = r % kTinyHeadDim;
    const int64_t to = head * kTinyHeadDim + (i < half ? 2 * i : 2 * (i - half) + 1);
    std::copy_n(values.begin() + r * columns, columns, out.begin() + to * columns);
  }
  return out;
}

// A GGUF file's metadata, completed by the tensor table and the data.
inline std::string with_tiny_tensors(GgufBytes b, const std::vector<TinyWeight>& weights, uint32_t type) {
  std::string data;
  for (const TinyWeight& w : weights) {
    const std::vector<float> values = paired_rows(w);
    data.resize((data.size() + 31) / 32 * 32);
    const std::vector<uint64_t> dims(w.shape.rbegin(), w.shape.rend());
    const uint32_t kind = w.shape.size() == 1 ? 0 : type;
    b.tensor(w.gguf, dims, kind, data.size());
    if (kind == 0) {
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
      continue;
    }
    for (size_t i = 0; i < values.size(); i += 32) {
      const uint16_t scale = float_to_half(0.25f / 127);
      data.append(reinterpret_cast<const char*>(&scale), 2);
      for (size_t k = 0; k < 32; ++k)
        data.push_back(static_cast<char>(std::lround(values[i + k] / half_to_float(scale))));
    }
  }
  return b.pad().data(data).bytes();
}

inline GgufBytes tiny_metadata(size_t tensors, size_t more_keys = 0) {
  GgufBytes b;
  b.header(tensors, 11 + more_keys)
      .key_text("general.architecture", "llama")
      .key_u32("llama.embedding_length", kTinyHidden);
  b.key_u32("llama.block_count", 1)
      .key_u32("llama.feed_forward_length", kTinyInner)
      .key_u32("llama.attention.head_count", kTinyHeads);
  b.key_u32("llama.attention.head_count_kv", kTinyKvHeads).key_u32("llama.attention.key_length", kTinyHeadDim);
  b.key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).key_u32("llama.context_length", 128);
  b.key_u32("tokenizer.ggml.eos_token_id", 7).key_u32("tokenizer.ggml.eot_token_id", 9);
  return b;
}

// The same model with matrices as F32 (type 0) or Q8_0 (type 8: codes of values times 127/0.25, scale 0.25/127).
inline std::filesystem::path write_tiny_gguf(const TempFolder& folder, const std::string& name, uint32_t type = 0) {
  const auto weights = tiny_weights(false);
  return folder.write(name, with_tiny_tensors(tiny_metadata(weights.size()), weights, type));
}

// The same in two parts; the path is that of the first.
inline std::filesystem::path write_tiny_gguf_parts(const TempFolder& folder) {
  const auto weights = tiny_weights(false);
  const std::vector<TinyWeight> one(weights.begin(), weights.begin() + 4), two(weights.begin() + 4, weights.end());
  GgufBytes first = tiny_metadata(one.size(), 2), second;
  first.key_u32("split.no", 0).key_u32("split.count", 2);
  second.header(two.size(), 2).key_u32("split.no", 1).key_u32("split.count", 2);
  folder.write("t-00002-of-00002.gguf", with_tiny_tensors(second, two, 0));
  return folder.write("t-00001-of-00002.gguf", with_tiny_tensors(first, one, 0));
}

}  // namespace onw::testing
