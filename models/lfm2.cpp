// LFM2: short gated convolutions, and attention with normed queries and keys in some layers (transformers models/lfm2).
#include "models/lfm2.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "graph/ops.h"
#include "models/families.h"
#include "models/layer_kinds.h"

namespace onw {
namespace {

// out(c * conv(b * x)), where b, c and x are the thirds of in(h); no activation.
Value short_conv(Builder& b, const DecoderConfig& c, int layer, Value h) {
  DecoderBlock block(b, c, layer);
  const std::string state = fmt::format("conv.{}", layer);
  b.state({.name = state, .kind = StateKind::conv, .layer = layer, .heads = c.hidden, .kernel = c.conv_kernel});
  const Value bcx =
      block.project("in_proj", h, "conv.in", 3 * c.hidden, "conv.in_proj", "shortconv.in_proj", c.conv_bias, "");
  const auto third = [&](std::string_view step, int64_t i) {
    return b.slice(step, bcx, 1, i * c.hidden, (i + 1) * c.hidden);
  };
  const Value u = b.node(Op::multiply, "conv_in", {third("b", 0), third("x", 2)});
  const Value w =
      block.vector("conv.kernel", {c.hidden, c.conv_kernel}, {{"conv.conv.weight"}}, "shortconv.conv.weight");
  const Attributes a = {{"state", state}};
  const Value y =
      c.conv_bias
          ? b.node(Op::conv_update, "conv",
                   {u, w, block.vector("conv.kernel.bias", {c.hidden}, {{"conv.conv.bias"}}, "shortconv.conv.bias")}, a)
          : b.node(Op::conv_update, "conv", {u, w}, a);
  return block.project("out_proj", b.node(Op::multiply, "conv_out", {third("c", 1), y}), "conv.out", c.hidden,
                       "conv.out_proj", "shortconv.out_proj", c.conv_bias, "");
}

// The MLP's width by the rule of transformers' Lfm2Config: block_ff_dim goes before intermediate_size.
Result<Json> with_mlp_width_of_rule(const Config& config) {
  Json j = config.json();
  const char* key = config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  const auto width = config.dimension(key);
  RETURN_IF_ERROR(width);
  if (*width > 1 << 22)
    return error(Code::bad_format, "config.json: '{}' is {}, expected at most {}", key, *width, 1 << 22);
  j["intermediate_size"] = *width;
  if (!config.boolean("block_auto_adjust_ff_dim", true)) return j;
  const double factor = config.number("block_ffn_dim_multiplier", 1);
  const int64_t multiple = config.integer("block_multiple_of", 256);
  if (!(factor > 0 && factor <= 1024))
    return error(Code::bad_format,
                 "config.json: 'block_ffn_dim_multiplier' is {}, expected more than 0 and at most 1024", factor);
  if (multiple < 1 || multiple > 1 << 20)
    return error(Code::bad_format, "config.json: 'block_multiple_of' is {}, expected 1 to {}", multiple, 1 << 20);
  const auto adjusted = static_cast<int64_t>(factor * static_cast<double>(2 * *width / 3));
  const bool rounded = !j.contains("block_ffn_dim_multiplier") || !j["block_ffn_dim_multiplier"].is_null();
  j["intermediate_size"] = rounded ? (adjusted + multiple - 1) / multiple * multiple : adjusted;
  return j;
}

// layer_types, or full_attn_idxs, or attention everywhere.
std::vector<std::string> layer_kinds(const Config& config, int64_t layers) {
  if (auto kinds = config.strings("layer_types"); !kinds.empty()) return kinds;
  const bool listed = config.has("full_attn_idxs");
  std::vector<std::string> kinds(static_cast<size_t>(layers), listed ? "conv" : "full_attention");
  for (const int64_t i : find_ints(config.json(), "full_attn_idxs"))
    if (i >= 0 && i < layers) kinds[static_cast<size_t>(i)] = "full_attention";
  return kinds;
}

}  // namespace

Value lfm2_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock words(b, c, layer);
  const Value h = words.norm("mixer_norm", x, "attn_norm", c.names.mixer_norm, "attn_norm");
  x = words.residual("mixer_add", x,
                     c.mixer(layer) == Mixer::short_conv ? short_conv(b, c, layer, h) : words.attention(h));
  const Value f = words.norm("mlp_norm", x, "mlp_norm", c.names.mlp_norm, c.names.gguf_mlp_norm);
  return words.residual("mlp_add", x, c.has_experts(layer) ? lfm2_experts(b, c, layer, f) : words.mlp(f));
}

Result<DecoderConfig> read_lfm2_config(std::string_view family, const Config& config) {
  auto c = read_decoder_config(family, config, /*own_head_dim=*/false);
  RETURN_IF_ERROR(c);
  c->norm_eps = config.number("norm_eps", 1e-5);
  c->qk_norm = true;
  c->conv_bias = config.boolean("conv_bias", false);
  c->conv_kernel = config.integer("conv_L_cache", 3);
  if (c->conv_kernel < 1 || c->conv_kernel > 64)
    return error(Code::bad_format, "config.json: 'conv_L_cache' is {}, expected 1 to 64", c->conv_kernel);
  RETURN_IF_ERROR(read_mixers(layer_kinds(config, c->layers), "conv", Mixer::short_conv, *c));
  if (const int64_t window = config.integer("sliding_window", 0); window > 0)
    c->windows.assign(static_cast<size_t>(c->layers), std::min<int64_t>(window, INT32_MAX));
  c->names = {.mixer_norm = "operator_norm",
              .mlp_norm = "ffn_norm",
              .q_norm = "self_attn.q_layernorm",
              .k_norm = "self_attn.k_layernorm",
              .o = "self_attn.out_proj",
              .gate = "feed_forward.w1",
              .up = "feed_forward.w3",
              .down = "feed_forward.w2",
              .last_norm = "embedding_norm",
              .gguf_last_norm = "token_embd_norm"};
  auto rope = config.rope("rope", "", c->head_dim, 1e6);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return c;
}

Result<Program> build_lfm2(const Config& published) {
  auto fields = with_mlp_width_of_rule(published);
  RETURN_IF_ERROR(fields);
  const auto c = read_lfm2_config("lfm2", published.with(std::move(*fields)));
  RETURN_IF_ERROR(c);
  return decoder_program(*c, lfm2_block);
}

// Key heads by layer, 0 where there is a convolution; the MLP's width as it is.
Result<Json> lfm2_config_from_gguf_keys(const Json& metadata, std::string_view arch, std::string_view model_type,
                                        std::string_view architecture) {
  const std::string heads_key = fmt::format("{}.attention.head_count_kv", arch);
  Json m = metadata;
  const std::vector<int64_t> by_layer = find_ints(metadata, heads_key);
  if (by_layer.empty() || std::ranges::max(by_layer) < 1)
    return error(Code::bad_format, "the GGUF file's '{}' does not tell the key heads of each layer", heads_key);
  m[heads_key] = std::ranges::max(by_layer);
  auto c = decoder_config_from_gguf(m, arch, model_type, architecture);
  RETURN_IF_ERROR(c);
  Json kinds = Json::array();
  for (const int64_t heads : by_layer) kinds.push_back(heads == 0 ? "conv" : "full_attention");
  (*c)["layer_types"] = std::move(kinds);
  (*c)["norm_eps"] = (*c)["rms_norm_eps"];
  (*c)["conv_L_cache"] = find_int(m, fmt::format("{}.shortconv.l_cache", arch)).value_or(3);
  return c;
}

Result<Json> lfm2_config_from_gguf(const Json& metadata) {
  auto c = lfm2_config_from_gguf_keys(metadata, "lfm2", "lfm2", "Lfm2ForCausalLM");
  if (c) (*c)["block_auto_adjust_ff_dim"] = false;
  return c;
}

}  // namespace onw
