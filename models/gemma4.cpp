// Gemma 4 text (E2B, E4B, 31B): Gemma's sandwich of norms (plain weights), windows on most layers, whose heads and RoPE
// are other ones than those of layers that see everything, values normed without a weight, no 1/sqrt(head_dim), last
// layers that read the keys and values of earlier ones, a layer's own embedding of each token, and logits with a cap
// (transformers models/gemma4). Images and sound are not built, experts beside the MLP (26B-A4B) neither.
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "graph/ops.h"
#include "models/families.h"

namespace onw {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";
constexpr const char* kLayerInputs = "layer_inputs";  // [S, layers * width]: what each layer has to say of the token

// layer_types where the config lists them, else every sixth sees everything; the last one does in any case.
Result<std::vector<std::string>> layer_kinds(const Config& config, int64_t layers) {
  std::vector<std::string> kinds = config.strings("layer_types");
  if (kinds.empty()) {
    kinds.assign(static_cast<size_t>(layers), kSliding);
    for (size_t i = 5; i < kinds.size(); i += 6) kinds[i] = kFull;
  }
  if (static_cast<int64_t>(kinds.size()) != layers)
    return error(Code::bad_format, "config.json: {} layer_types for {} layers", kinds.size(), layers);
  kinds.back() = kFull;
  for (const std::string& kind : kinds)
    if (kind != kSliding && kind != kFull)
      return error(Code::unsupported, "config.json: layer_types with '{}' are not supported; {} and {} are",
                   kind.substr(0, 40), kFull, kSliding);
  return kinds;
}

// A size of one layer: in per_layer_config, as newer releases write it, else by its kind.
Result<int64_t> size_of(const Config& config, size_t layer, const char* key, int64_t otherwise, int64_t most) {
  int64_t n = otherwise;
  if (const Json* all = find_object(config.json(), "per_layer_config"))
    if (const Json* own = find_object(*all, std::to_string(layer)); own != nullptr && own->contains(key))
      n = find_int(*own, key).value_or(0);
  if (n < 1 || n > most)
    return error(Code::bad_format, "config.json: '{}' of layer {} is {}, expected 1 to {}", key, layer, n, most);
  return n;
}

// The last layer of the same kind that keeps keys and values of its own.
Result<int> kv_layer(const std::vector<std::string>& kinds, size_t layer, size_t first_shared) {
  if (layer < first_shared) return static_cast<int>(layer);
  for (size_t i = first_shared; i-- > 0;)
    if (kinds[i] == kinds[layer]) return static_cast<int>(i);
  return error(Code::bad_format,
               "config.json: 'num_kv_shared_layers' leaves no layer of '{}' whose keys and values layer {} could read",
               kinds[layer], layer);
}

Result<void> read_layers(const Config& config, DecoderConfig& c) {
  const auto kinds = layer_kinds(config, c.layers);
  RETURN_IF_ERROR(kinds);
  const int64_t shared = config.integer("num_kv_shared_layers", 0), window = config.integer("sliding_window", 512);
  if (shared < 0 || shared >= c.layers)
    return error(Code::bad_format, "config.json: 'num_kv_shared_layers' is {} of {} layers, expected 0 to {}", shared,
                 c.layers, c.layers - 1);
  if (window < 1 || window > INT32_MAX)
    return error(Code::bad_format, "config.json: 'sliding_window' is {}, expected 1 to 2^31 - 1", window);
  if (config.has("per_layer_config") && find_object(config.json(), "per_layer_config") == nullptr)
    return error(Code::bad_format, "config.json: 'per_layer_config' is no object");
  const bool alike = config.boolean("attention_k_eq_v", false);
  const int64_t wide = config.boolean("use_double_wide_mlp", false) ? 2 : 1;
  const auto first_shared = static_cast<size_t>(c.layers - shared);
  for (size_t i = 0; i < kinds->size(); ++i) {
    const bool slides = (*kinds)[i] == kSliding;
    const auto dim = size_of(config, i, "head_dim", slides ? c.head_dim : config.integer("global_head_dim", 512), 1024);
    RETURN_IF_ERROR(dim);
    const int64_t full_heads = alike ? config.integer("num_global_key_value_heads", c.kv_heads) : c.kv_heads;
    const auto kv = size_of(config, i, "num_key_value_heads", slides ? c.kv_heads : full_heads, c.heads);
    RETURN_IF_ERROR(kv);
    if (c.heads % *kv != 0)
      return error(Code::bad_format, "config.json: {} heads are no multiple of the {} key-value heads of layer {}",
                   c.heads, *kv, i);
    const auto source = kv_layer(*kinds, i, first_shared);
    RETURN_IF_ERROR(source);
    c.sizes.push_back({.head_dim = *dim,
                       .kv_heads = *kv,
                       .intermediate = c.intermediate * (i < first_shared ? 1 : wide),
                       .kv_layer = *source,
                       .keys_are_values = alike && !slides});
    const LayerSizes& from = c.sizes[static_cast<size_t>(*source)];
    if (from.head_dim != *dim || from.kv_heads != *kv)
      return error(Code::bad_format,
                   "config.json: layer {} has {} key-value heads of {}, layer {}, whose it reads, {} of {}", i, *kv,
                   *dim, *source, from.kv_heads, from.head_dim);
    c.windows.push_back(slides ? window : 0);
    c.layer_ropes.push_back(slides ? "rope_local" : "rope");
  }
  return {};
}

// A table a kind, as wide as its heads.
Result<void> read_ropes(const Config& config, DecoderConfig& c) {
  Json fields = config.json();
  if (!fields.contains("rope_parameters") || !fields["rope_parameters"].is_object())
    fields["rope_parameters"] = {
        {kSliding, {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {kFull, {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}};
  const Config read = config.with(std::move(fields));
  for (const auto& [name, kind, theta] : {std::tuple("rope", kFull, 1e6), {"rope_local", kSliding, 1e4}}) {
    int64_t dim = 0;
    for (size_t i = 0; i < c.sizes.size(); ++i) {
      if (c.layer_ropes[i] != name) continue;
      if (dim != 0 && c.sizes[i].head_dim != dim)
        return error(Code::unsupported, "config.json: layers of '{}' with heads of {} and of {}", kind, dim,
                     c.sizes[i].head_dim);
      dim = c.sizes[i].head_dim;
    }
    if (dim == 0) continue;
    auto rope = read.rope(name, kind, dim, theta);
    RETURN_IF_ERROR(rope);
    c.ropes.push_back(std::move(*rope));
  }
  return {};
}

Result<DecoderConfig> read_config(const Config& config) {
  if (config.boolean("enable_moe_block", false))
    return error(Code::unsupported,
                 "Gemma 4 with experts beside the MLP (26B-A4B) is not supported; E2B, E4B and 31B are");
  if (config.text("use_bidirectional_attention", "") == "all")
    return error(Code::unsupported, "Gemma 4 with bidirectional attention (an embedding model) is not supported");
  if (const std::string kind = config.text("hidden_activation", "gelu_pytorch_tanh"); kind != "gelu_pytorch_tanh")
    return error(Code::unsupported, "config.json: hidden_activation '{}' is not supported; gelu_pytorch_tanh is",
                 kind.substr(0, 40));
  auto c = read_decoder_config("gemma4", config);
  RETURN_IF_ERROR(c);
  if (!config.has("head_dim")) c->head_dim = 256;
  if (!config.has("max_position_embeddings")) c->max_context = 131072;
  c->tied = config.boolean("tie_word_embeddings", true);
  c->qkv_bias = c->output_bias = config.boolean("attention_bias", false);
  c->qk_norm = c->v_norm = true;
  c->activation = "gelu_tanh";
  c->attention_scale = 1;
  c->embedding_scale = std::sqrt(static_cast<double>(c->hidden));
  c->logits_soft_cap = config.number("final_logit_softcapping", 0);
  RETURN_IF_ERROR(read_layers(config, *c));
  RETURN_IF_ERROR(read_ropes(config, *c));
  return c;
}

// The width of a layer's own embedding; 0: layers have none.
Result<int64_t> layer_input_width(const Config& config, const DecoderConfig& c) {
  const int64_t width = config.integer("hidden_size_per_layer_input", 256);
  if (width < 0 || width > 1 << 16)
    return error(Code::bad_format, "config.json: 'hidden_size_per_layer_input' is {}, expected 0 to 65536", width);
  const int64_t tokens = config.integer("vocab_size_per_layer_input", c.vocabulary);
  if (width > 0 && (tokens < c.vocabulary || tokens > 1 << 24))
    return error(Code::bad_format,
                 "config.json: 'vocab_size_per_layer_input' is {}, expected at least the {} of 'vocab_size'", tokens,
                 c.vocabulary);
  return width;
}

void declare_layer_embedding(Program& p, const DecoderConfig& c, int64_t width, int64_t tokens) {
  p.weights.push_back({.name = "embed_layers",
                       .shape = {tokens, c.layers * width},
                       .role = WeightRole::lookup,
                       .hugging_face = {{"embed_tokens_per_layer.weight"}},
                       .gguf = {{"per_layer_token_embd.weight"}}});
  p.lookups.push_back({kLayerInputs, "embed_layers", std::sqrt(static_cast<double>(width))});
}

// [S, layers * width]: of each layer the mean of its embedding of the token and of what it takes from x, the embedding
// that all share.
Value layer_inputs(Builder& b, const DecoderConfig& c, int64_t width, Value x) {
  const int64_t all = c.layers * width;
  const Value token = b.input(kLayerInputs, {DType::f32, {kRows, all}});
  const Value w = b.weight({.name = "layer_inputs.proj",
                            .shape = {all, c.hidden},
                            .hugging_face = {{"per_layer_model_projection.weight"}},
                            .gguf = {{"per_layer_model_proj.weight"}}});
  const Value norm = b.weight({.name = "layer_inputs.norm",
                               .shape = {width},
                               .role = WeightRole::vector,
                               .hugging_face = {{"per_layer_projection_norm.weight"}},
                               .gguf = {{"per_layer_proj_norm.weight"}}});
  Value context =
      b.scale("layer_inputs_scaled", b.linear("layer_inputs_proj", x, w), 1 / std::sqrt(static_cast<double>(c.hidden)));
  context = b.reshape("layer_inputs_layers", context, {kRows, c.layers, width});
  context = b.rms_norm("layer_inputs_norm", context, norm, c.norm_eps);
  context = b.reshape("layer_inputs_rows", context, {kRows, all});
  return b.scale("layer_inputs_mean", b.add("layer_inputs_add", context, token), std::sqrt(0.5));
}

// What the layer's own embedding adds: gated by x, projected, normed.
Value layer_embedding(Builder& b, DecoderBlock& l, const DecoderConfig& c, Value x, Value own) {
  const Value gate =
      l.project("layer_gate", x, "layer_gate", b.type(own).last(), "per_layer_input_gate", "inp_gate", false, "");
  const Value gated = b.gated("layer_gated", gate, own, c.activation);
  const Value wide = l.project("layer_proj", gated, "layer_proj", c.hidden, "per_layer_projection", "proj", false, "");
  return l.norm("layer_norm", wide, "layer_norm", "post_per_layer_input_norm", "post_norm");
}

// `inputs` is invalid where `width` is 0: then layers have no embedding of their own.
Value block(Builder& b, const DecoderConfig& c, int layer, Value x, Value inputs, int64_t width) {
  x = sandwich_norm_block(b, c, layer, x);
  const Scope scope(b, layer);
  DecoderBlock l(b, c, layer);
  if (width > 0) {
    const Value own = b.slice("layer_input", inputs, 1, layer * width, (layer + 1) * width);
    x = b.add("layer_add", x, layer_embedding(b, l, c, x, own));
  }
  const Value scalar = l.vector("scalar", {1}, {{"layer_scalar"}}, "layer_output_scale.weight");
  return b.node(Op::multiply, "layer_scaled", {x, scalar});
}

}  // namespace

Result<Program> build_gemma4(const Config& config) {
  const auto c = read_config(config);
  RETURN_IF_ERROR(c);
  const auto width = layer_input_width(config, *c);
  RETURN_IF_ERROR(width);
  Program p = empty_program(*c);
  if (*width > 0) declare_layer_embedding(p, *c, *width, config.integer("vocab_size_per_layer_input", c->vocabulary));
  Builder b(p, "body");
  Value x = begin_body(b, *c);
  const Value inputs = *width > 0 ? layer_inputs(b, *c, *width, x) : Value();
  for (int layer = 0; layer < c->layers; ++layer) x = block(b, *c, layer, x, inputs, *width);
  RETURN_IF_ERROR(finish_body(b, *c, x));
  RETURN_IF_ERROR(add_head(p, *c));
  return p;
}

namespace {

// A number for each layer, from a list or one that all have; empty where the file has none.
Result<std::vector<int64_t>> by_layer(const Json& m, const std::string& key, int64_t layers) {
  std::vector<int64_t> list;
  if (!m.contains(key)) return list;
  const Json& v = m[key];
  for (int64_t i = 0; i < layers; ++i) {
    const Json& one = v.is_array() && i < static_cast<int64_t>(v.size()) ? v[static_cast<size_t>(i)] : v;
    if (!one.is_number_integer() && !one.is_boolean())
      return error(Code::bad_format, "the GGUF file's '{}' does not hold a number for each of {} layers", key, layers);
    list.push_back(one.is_boolean() ? static_cast<int64_t>(one.get<bool>()) : one.get<int64_t>());
  }
  return list;
}

// Divisors of 1 where a pair turns, and huge ones behind them, are proportional RoPE.
Json full_rope(const Json& m, double theta) {
  Json rope = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", theta}};
  if (!m.contains("onw.rope_freqs")) return rope;
  const auto factors = m["onw.rope_freqs"].get<std::vector<double>>();
  const auto live = std::ranges::count(factors, 1.0);
  if (std::ranges::count_if(factors, [](double f) { return f > 1e20; }) + live != std::ssize(factors))
    return {{"rope_type", "factors"}, {"factors", m["onw.rope_freqs"]}, {"rope_theta", theta}};
  rope["partial_rotary_factor"] = static_cast<double>(live) / static_cast<double>(factors.size());
  return rope;
}

}  // namespace

// MLPs twice as wide in the layers that share keys and values are a list there; whose heads are which is told by
// "key_length" for layers that see everything and "key_length_swa" for the others.
Result<Json> gemma4_config_from_gguf(const Json& metadata) {
  const auto key = [](std::string_view name) { return fmt::format("gemma4.{}", name); };
  Json m = metadata;
  const int64_t layers = find_int(m, key("block_count")).value_or(0);
  if (layers < 1 || layers > 1000)
    return error(Code::bad_format, "the GGUF file's '{}' is no number of layers", key("block_count"));
  const auto widths = by_layer(m, key("feed_forward_length"), layers),
             kv = by_layer(m, key("attention.head_count_kv"), layers),
             slides = by_layer(m, key("attention.sliding_window_pattern"), layers);
  RETURN_IF_ERROR(widths);
  RETURN_IF_ERROR(kv);
  RETURN_IF_ERROR(slides);
  if (!widths->empty()) m[key("feed_forward_length")] = widths->front();
  if (!kv->empty()) m[key("attention.head_count_kv")] = kv->front();
  auto c = decoder_config_from_gguf(m, "gemma4", "gemma4_text", "Gemma4ForCausalLM");
  RETURN_IF_ERROR(c);
  (*c)["enable_moe_block"] = find_int(m, key("expert_count")).value_or(0) > 0;
  (*c)["attention_k_eq_v"] = find_bool(m, "onw.keys_are_values").value_or(false);
  (*c)["use_double_wide_mlp"] = widths->back() == 2 * widths->front();
  (*c)["num_kv_shared_layers"] = find_int(m, key("attention.shared_kv_layers")).value_or(0);
  (*c)["hidden_size_per_layer_input"] = find_int(m, key("embedding_length_per_layer_input")).value_or(0);
  (*c)["vocab_size_per_layer_input"] = (*c)["vocab_size"];
  (*c)["global_head_dim"] = find_int(m, key("attention.key_length")).value_or(512);
  (*c)["head_dim"] = find_int(m, key("attention.key_length_swa")).value_or(256);
  if (const auto cap = find_number(m, key("final_logit_softcapping"))) (*c)["final_logit_softcapping"] = *cap;
  const double theta = find_number(m, key("rope.freq_base")).value_or(1e6);
  (*c)["rope_parameters"] = {
      {kFull, full_rope(m, theta)},
      {kSliding, {{"rope_type", "default"}, {"rope_theta", find_number(m, key("rope.freq_base_swa")).value_or(1e4)}}}};
  for (size_t i = 0; i < slides->size(); ++i) {
    (*c)["layer_types"].push_back((*slides)[i] != 0 ? kSliding : kFull);
    if (!kv->empty()) (*c)[(*slides)[i] != 0 ? "num_key_value_heads" : "num_global_key_value_heads"] = (*kv)[i];
  }
  return c;
}

}  // namespace onw
