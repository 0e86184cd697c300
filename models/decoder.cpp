#include "models/decoder.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/json.h"

namespace onw {

Result<DecoderConfig> read_decoder_config(std::string_view family, const Config& config, bool own_head_dim) {
  DecoderConfig c;
  c.family = family;
  // Limits far beyond any model's: products of three of them, and of their bytes, cannot overflow.
  const std::tuple<std::string_view, int64_t*, int64_t> dimensions[] = {{"hidden_size", &c.hidden, 1 << 20},
                                                                        {"num_hidden_layers", &c.layers, 1000},
                                                                        {"intermediate_size", &c.intermediate, 1 << 22},
                                                                        {"num_attention_heads", &c.heads, 1 << 14},
                                                                        {"vocab_size", &c.vocabulary, 1 << 24}};
  for (const auto& [key, field, most] : dimensions) {
    const auto n = config.dimension(key);
    RETURN_IF_ERROR(n);
    if (*n > most) return error(Code::bad_format, "config.json: '{}' is {}, expected at most {}", key, *n, most);
    *field = *n;
  }
  c.kv_heads = config.integer("num_key_value_heads", c.heads);
  c.head_dim = own_head_dim ? config.integer("head_dim", c.hidden / c.heads) : c.hidden / c.heads;
  if (c.kv_heads <= 0 || c.heads % c.kv_heads != 0)
    return error(Code::bad_format,
                 "config.json: 'num_attention_heads' is {}, no multiple of 'num_key_value_heads', which is {}", c.heads,
                 c.kv_heads);
  if (c.head_dim <= 0 || c.head_dim > 1024)
    return error(Code::bad_format, "config.json: 'head_dim' is {}, expected 1 to 1024", c.head_dim);
  c.max_context = config.integer("max_position_embeddings", 2048);
  if (c.max_context < 1 || c.max_context > INT32_MAX)
    return error(Code::bad_format, "config.json: 'max_position_embeddings' is {}, expected 1 to 2^31 - 1",
                 c.max_context);
  c.norm_eps = config.number("rms_norm_eps", 1e-6);
  c.tied = config.boolean("tie_word_embeddings", false);
  return c;
}

Value DecoderBlock::matrix(std::string_view name, Shape shape, WeightSource hf, std::string_view gguf,
                           std::string_view group, Fold gguf_fold) {
  const std::string prefix = fmt::format("layers.{}.", layer_);
  for (std::string& n : hf.names) n = prefix + n;
  WeightDecl w{.name = prefix + std::string(name), .shape = std::move(shape), .hugging_face = std::move(hf)};
  w.role = w.shape.size() == 1 ? WeightRole::vector : WeightRole::matrix;
  w.head_dim = sizes_.head_dim;
  w.gguf = {{fmt::format("blk.{}.{}", layer_, gguf)}, gguf_fold, 0};
  if (!group.empty()) w.group = prefix + std::string(group);
  return b_.weight(w);
}

Value DecoderBlock::vector(std::string_view name, Shape shape, WeightSource hf, std::string_view gguf) {
  const std::string prefix = fmt::format("layers.{}.", layer_);
  for (std::string& n : hf.names) n = prefix + n;
  return b_.weight({.name = prefix + std::string(name),
                    .shape = std::move(shape),
                    .role = WeightRole::vector,
                    .hugging_face = std::move(hf),
                    .gguf = {{fmt::format("blk.{}.{}", layer_, gguf)}}});
}

Value DecoderBlock::project(std::string_view step, Value x, std::string_view name, int64_t out, std::string_view hf,
                            std::string_view gguf, bool bias, std::string_view group, Fold gguf_fold) {
  const auto named = [](std::string_view base, std::string_view part) { return fmt::format("{}.{}", base, part); };
  const int64_t in = b_.type(x).last();
  const Value w = matrix(name, {out, in}, {{named(hf, "weight")}}, named(gguf, "weight"), group, gguf_fold);
  if (!bias) return b_.linear(step, x, w);
  const Value add = matrix(named(name, "bias"), {out}, {{named(hf, "bias")}}, named(gguf, "bias"), "", gguf_fold);
  return b_.linear(step, x, w, add);
}

Value DecoderBlock::norm(std::string_view step, Value x, std::string_view name, std::string_view hf,
                         std::string_view gguf) {
  const Value w = matrix(name, {b_.type(x).last()}, {{fmt::format("{}.weight", hf)}, c_.norm_fold},
                         fmt::format("{}.weight", gguf), "");
  return b_.rms_norm(step, x, w, c_.norm_eps);
}

Value DecoderBlock::heads(std::string_view what, Value x, int64_t count) {
  return b_.reshape(fmt::format("{}_heads", what), x, {kRows, count, sizes_.head_dim});
}

// cos and sin of the layer's table are inputs of the function, made once.
Value DecoderBlock::rotate(std::string_view step, Value x) {
  const std::string_view table = c_.rope(layer_);
  if (table.empty()) return x;
  const auto input = [&](std::string_view part) { return b_.find_input(fmt::format("{}.{}", table, part)); };
  return b_.rope(step, x, input("cos"), input("sin"));
}

// q, and beside it the gate, which lie head by head in one published tensor.
Value DecoderBlock::gated_query(Value h, int64_t width, Value& gate) {
  const auto half = [&](std::string_view step, std::string_view name, int64_t begin) {
    const std::string prefix = fmt::format("layers.{}.", layer_);
    const Value w = b_.weight({.name = prefix + std::string(name),
                               .shape = {width, b_.type(h).last()},
                               .head_dim = c_.head_dim,
                               .hugging_face = {{prefix + "self_attn.q_proj.weight"}, Fold::head_half, begin},
                               .gguf = {{fmt::format("blk.{}.attn_q.weight", layer_)}, Fold::head_half, begin},
                               .group = prefix + "attn.qkv"});
    return b_.linear(step, h, w);
  };
  gate = half("q_gate", "attn.q_gate", c_.head_dim);
  return half("q_proj", "attn.q", 0);
}

DecoderBlock::KeysAndValues DecoderBlock::keys_and_values(Value h) {
  const int64_t width = sizes_.kv_heads * sizes_.head_dim;
  const Value k =
      project("k_proj", h, "attn.k", width, "self_attn.k_proj", "attn_k", c_.qkv_bias, "attn.qkv", c_.gguf_qk_fold);
  if (sizes_.keys_are_values) return {k, k};
  return {k, project("v_proj", h, "attn.v", width, "self_attn.v_proj", "attn_v", c_.qkv_bias, "attn.qkv")};
}

void DecoderBlock::write(std::string_view state, const KeysAndValues& projected) {
  b_.state({.name = std::string(state),
            .kind = StateKind::kv,
            .layer = layer_,
            .heads = sizes_.kv_heads,
            .head_dim = sizes_.head_dim,
            .value_dim = sizes_.head_dim,
            .window = c_.window(layer_)});
  Value k = heads("k", projected.k, sizes_.kv_heads), v = heads("v", projected.v, sizes_.kv_heads);
  if (c_.qk_norm) k = norm("k_norm", k, "attn.k_norm", c_.names.k_norm, "attn_k_norm");
  if (c_.v_norm) v = b_.rms_norm("v_norm", v, std::nullopt, c_.norm_eps);
  b_.kv_write("kv_write", state, rotate("k_rope", k), v);
}

Value DecoderBlock::attention(Value h) {
  const std::string state = fmt::format("kv.{}", sizes_.kv_layer);
  const bool own_cache = sizes_.kv_layer == layer_;
  const int64_t q_width = c_.heads * sizes_.head_dim;
  Value gate;
  Value q = c_.output_gate ? gated_query(h, q_width, gate)
                           : project("q_proj", h, "attn.q", q_width, "self_attn.q_proj", "attn_q", c_.qkv_bias,
                                     "attn.qkv", c_.gguf_qk_fold);
  const KeysAndValues projected = own_cache ? keys_and_values(h) : KeysAndValues();
  q = heads("q", q, c_.heads);
  if (c_.qk_norm) q = norm("q_norm", q, "attn.q_norm", c_.names.q_norm, "attn_q_norm");
  q = rotate("q_rope", q);
  if (own_cache) write(state, projected);
  const double scale =
      c_.attention_scale != 0 ? c_.attention_scale : 1 / std::sqrt(static_cast<double>(sizes_.head_dim));
  std::optional<Value> sinks;
  if (c_.sinks) sinks = matrix("attn.sinks", {c_.heads}, {{"self_attn.sinks"}}, "attn_sinks.weight", "");
  const Value a = b_.attention(
      "attention", state, q,
      {.scale = scale, .window = Window::last(c_.window(layer_)), .soft_cap = c_.attention_soft_cap}, sinks);
  Value rows = b_.reshape("o_rows", a, {kRows, q_width});
  if (c_.output_gate) rows = b_.gated("o_gated", gate, rows, "sigmoid");
  return project("o_proj", rows, "attn.o", c_.hidden, c_.names.o, "attn_output", c_.output_bias, "");
}

Value DecoderBlock::mlp(Value h, std::string_view fused_hf, std::string_view down_hf) {
  Value gate, up;
  if (fused_hf.empty()) {
    gate = project("gate_proj", h, "mlp.gate", sizes_.intermediate, c_.names.gate, c_.names.gguf_gate, c_.mlp_bias,
                   "mlp.gate_up");
    up =
        project("up_proj", h, "mlp.up", sizes_.intermediate, c_.names.up, c_.names.gguf_up, c_.mlp_bias, "mlp.gate_up");
  } else {
    const Shape shape = {sizes_.intermediate, b_.type(h).last()};
    const std::string fused = fmt::format("{}.weight", fused_hf);
    gate = b_.linear("gate_proj", h, matrix("mlp.gate", shape, {{fused}}, "ffn_gate.weight", "mlp.gate_up"));
    up = b_.linear("up_proj", h,
                   matrix("mlp.up", shape, {{fused}, Fold::none, sizes_.intermediate}, "ffn_up.weight", "mlp.gate_up"));
  }
  const Value inner = b_.gated("gated", gate, up, c_.activation);
  return project("down_proj", inner, "mlp.down", c_.hidden, down_hf.empty() ? c_.names.down : down_hf,
                 c_.names.gguf_down, c_.mlp_bias, "");
}

Value DecoderBlock::residual(std::string_view step, Value x, Value y) {
  return b_.add(step, x, b_.scale(fmt::format("{}_scaled", step), y, c_.residual_scale));
}

Value pre_norm_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  x = block.residual("attn_add", x,
                     block.attention(block.norm("attn_norm", x, "attn_norm", c.names.mixer_norm, "attn_norm")));
  x = block.residual("mlp_add", x,
                     block.mlp(block.norm("mlp_norm", x, "mlp_norm", c.names.mlp_norm, c.names.gguf_mlp_norm)));
  return x;
}

Value sandwich_norm_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock block(b, c, layer);
  const Value a = block.attention(block.norm("attn_norm", x, "attn_norm", "input_layernorm", "attn_norm"));
  x = b.add("attn_add", x,
            block.norm("post_attn_norm", a, "post_attn_norm", "post_attention_layernorm", "post_attention_norm"));
  const Value m = block.mlp(block.norm("mlp_norm", x, "mlp_norm", "pre_feedforward_layernorm", "ffn_norm"));
  return b.add("mlp_add", x,
               block.norm("post_mlp_norm", m, "post_mlp_norm", "post_feedforward_layernorm", "post_ffw_norm"));
}

Value begin_body(Builder& b, const DecoderConfig& c) {
  const Value x = b.input("x", {DType::f32, {kRows, c.hidden}});
  for (const RopeTable& r : c.ropes)
    for (const char* part : {"cos", "sin"})
      b.input(fmt::format("{}.{}", r.name, part), {DType::f32, {kRows, static_cast<int64_t>(r.inv_freq.size())}});
  return x;
}

Result<void> finish_body(Builder& b, const DecoderConfig& c, Value x) {
  const Value w = b.weight({.name = "norm",
                            .shape = {c.hidden},
                            .role = WeightRole::vector,
                            .hugging_face = {{fmt::format("{}.weight", c.names.last_norm)}, c.norm_fold},
                            .gguf = {{fmt::format("{}.weight", c.names.gguf_last_norm)}}});
  b.output("hidden", b.rms_norm("norm", x, w, c.norm_eps));
  return b.finish();
}

Result<void> add_head(Program& p, const DecoderConfig& c) {
  Builder b(p, "head");
  const Value hidden = b.input("hidden", {DType::f32, {kRows, c.hidden}});
  const WeightDecl* embed = p.weight("embed");
  CHECK(embed != nullptr);
  const WeightDecl head = c.tied ? *embed
                                 : WeightDecl{.name = "head",
                                              .shape = {c.vocabulary, c.hidden},
                                              .role = WeightRole::head,
                                              .hugging_face = {{"lm_head.weight"}},
                                              .gguf = {{"output.weight"}}};
  Value logits = b.linear("head", hidden, b.weight(head));
  logits = b.scale("logits_scaled", logits, c.logits_scale);
  if (c.logits_soft_cap > 0) logits = b.soft_cap("logits_capped", logits, c.logits_soft_cap);
  b.output("logits", logits);
  return b.finish();
}

Program empty_program(const DecoderConfig& c) {
  Program p{.family = c.family,
            .layers = c.layers,
            .hidden = c.hidden,
            .vocabulary = c.vocabulary,
            .max_context = c.max_context};
  p.rope_tables = c.ropes;
  p.embedding_scale = c.embedding_scale;
  p.weights.push_back({.name = "embed",
                       .shape = {c.vocabulary, c.hidden},
                       .role = WeightRole::embedding,
                       .hugging_face = {{"embed_tokens.weight"}},
                       .gguf = {{"token_embd.weight"}}});
  return p;
}

Result<Program> decoder_program(const DecoderConfig& c, BlockFunction block) {
  Program p = empty_program(c);
  Builder b(p, "body");
  Value x = begin_body(b, c);
  for (int layer = 0; layer < c.layers; ++layer) x = block(b, c, layer, x);
  RETURN_IF_ERROR(finish_body(b, c, x));
  RETURN_IF_ERROR(add_head(p, c));
  return p;
}

Result<Json> decoder_config_from_gguf(const Json& m, std::string_view arch, std::string_view model_type,
                                      std::string_view architecture) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
  Json c = {{"architectures", {architecture}}, {"model_type", model_type}};
  const std::tuple<const char*, const char*, bool> keys[] = {{"embedding_length", "hidden_size", true},
                                                             {"block_count", "num_hidden_layers", true},
                                                             {"feed_forward_length", "intermediate_size", true},
                                                             {"attention.head_count", "num_attention_heads", true},
                                                             {"attention.head_count_kv", "num_key_value_heads", false},
                                                             {"attention.key_length", "head_dim", false},
                                                             {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
                                                             {"context_length", "max_position_embeddings", false},
                                                             {"rope.freq_base", "rope_theta", false},
                                                             {"attention.sliding_window", "sliding_window", false}};
  for (const auto& [from, to, needed] : keys) {
    if (m.contains(key(from))) {
      c[to] = m[key(from)];
      if (!c[to].is_number())
        return error(Code::unsupported, "the GGUF file's '{}' is {}, a number is expected: lists by layer are not read",
                     key(from), dump_json(c[to], -1).substr(0, 40));
    } else if (needed) {
      return error(Code::bad_format, "the GGUF file has no '{}'", key(from));
    }
  }
  for (const auto& [id, name] : {std::pair{"bos", "bos_token_id"}, std::pair{"eos", "eos_token_id"}})
    if (const auto k = fmt::format("tokenizer.ggml.{}_token_id", id); m.contains(k)) c[name] = m[k];
  c["vocab_size"] = m.contains(key("vocab_size")) ? m[key("vocab_size")] : m.value("onw.vocab_size", Json());
  const auto is_true = [&](const char* name) { return m.contains(name) && m[name] == true; };
  c["tie_word_embeddings"] = !is_true("onw.has_head");
  c["attention_bias"] = is_true("onw.has_attention_bias");  // no key says so
  c["mlp_bias"] = is_true("onw.has_mlp_bias");
  if (m.contains("onw.rope_freqs")) {
    c["rope_parameters"] = {
        {"rope_type", "factors"}, {"factors", m["onw.rope_freqs"]}, {"rope_theta", c.value("rope_theta", 10000.0)}};
  } else if (m.contains(key("rope.scaling.type")) && m[key("rope.scaling.type")] != "none") {
    Json r = {{"rope_type", m[key("rope.scaling.type")]}};
    for (const auto& [from, to] :
         {std::pair{"rope.scaling.factor", "factor"},
          std::pair{"rope.scaling.original_context_length", "original_max_position_embeddings"},
          std::pair{"rope.scaling.attn_factor", "attention_factor"}})
      if (m.contains(key(from))) r[to] = m[key(from)];
    c["rope_scaling"] = r;
  }
  return c;
}

}  // namespace onw
