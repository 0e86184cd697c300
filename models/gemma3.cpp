// Gemma 3 text: norms of 1 + w before and after both halves of a block, q and k norms, windows on most layers with a
// RoPE of their own, embeddings times sqrt(hidden), gelu_tanh (transformers models/gemma3; facts: Gemma 3 report, arXiv
// 2503.19786).
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "models/families.h"

namespace onw {
namespace {

// layer_types where the config lists them; else every pattern-th layer sees everything.
Result<std::vector<bool>> sliding_layers(const Config& config, int64_t layers) {
  const auto kinds = config.strings("layer_types");
  const int64_t pattern = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6));
  if (!kinds.empty() && static_cast<int64_t>(kinds.size()) != layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), layers);
  if (pattern < 1 || pattern > INT32_MAX)
    return error(Code::bad_format, "config.json: sliding_window_pattern is {}", pattern);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < layers; ++i)
    sliding.push_back(kinds.empty() ? (i + 1) % pattern != 0 : kinds[static_cast<size_t>(i)] == "sliding_attention");
  return sliding;
}

}  // namespace

Result<Program> build_gemma3(const Config& config) {
  if (config.boolean("use_bidirectional_attention", false))
    return error(Code::unsupported, "Gemma 3 with bidirectional attention (an embedding model) is not supported");
  auto c = read_decoder_config("gemma3", config);
  RETURN_IF_ERROR(c);
  c->head_dim = config.integer("head_dim", 256);
  if (c->head_dim < 1 || c->head_dim > 1024)
    return error(Code::bad_format, "config.json: 'head_dim' is {}, expected 1 to 1024", c->head_dim);
  c->tied = config.boolean("tie_word_embeddings", true);
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", false);
  c->qk_norm = true;
  c->norm_fold = Fold::add_one;
  c->activation = "gelu_tanh";
  c->embedding_scale = std::sqrt(static_cast<double>(c->hidden));
  const double scalar = config.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) return error(Code::bad_format, "config.json: query_pre_attn_scalar is {}", scalar);
  c->attention_scale = 1 / std::sqrt(scalar);
  c->attention_soft_cap = config.number("attn_logit_softcapping", 0);
  c->logits_soft_cap = config.number("final_logit_softcapping", 0);
  const auto sliding = sliding_layers(config, c->layers);
  RETURN_IF_ERROR(sliding);
  const int64_t window = config.integer("sliding_window", 4096);
  if (window < 1 || window > INT32_MAX)
    return error(Code::bad_format, "config.json: 'sliding_window' is {}, expected 1 to 2^31 - 1", window);
  for (const bool s : *sliding) {
    c->windows.push_back(s ? window : 0);
    c->layer_ropes.push_back(s ? "rope_local" : "rope");
  }
  auto full = config.rope("rope", "full_attention", c->head_dim, 1e6);
  RETURN_IF_ERROR(full);
  Json local = config.json();  // the old dialect: a base of its own, and no scaling
  if (!local.contains("rope_parameters") || !local["rope_parameters"].contains("sliding_attention")) {
    local.erase("rope_scaling");
    local.erase("rope_parameters");
    local["rope_theta"] = config.number("rope_local_base_freq", 10000);
  }
  auto near = config.with(std::move(local)).rope("rope_local", "sliding_attention", c->head_dim, 10000);
  RETURN_IF_ERROR(near);
  c->ropes = {std::move(*full), std::move(*near)};
  return decoder_program(*c, sandwich_norm_block);
}

// The file lacks the local theta, the pattern and the query scalar: the published defaults hold (27B alone differs:
// hidden / heads).
Result<Json> gemma3_config_from_gguf(const Json& m) {
  auto c = decoder_config_from_gguf(m, "gemma3", "gemma3_text", "Gemma3ForCausalLM");
  RETURN_IF_ERROR(c);
  const auto integer = [&c](std::string_view key) { return find_int(*c, key).value_or(0); };
  const bool is_27b = integer("num_hidden_layers") == 62;
  (*c)["query_pre_attn_scalar"] = is_27b ? integer("hidden_size") / std::max<int64_t>(1, integer("num_attention_heads"))
                                         : find_int(*c, "head_dim").value_or(256);
  (*c)["hidden_activation"] = "gelu_pytorch_tanh";
  return c;
}

}  // namespace onw
