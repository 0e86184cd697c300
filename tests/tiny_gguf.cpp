#include "tests/tiny_gguf.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "convert/gguf_bytes.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

using nlohmann::json;

constexpr uint32_t kF32 = 0;

struct Names {
  const char* hugging_face;
  const char* gguf;
};
// The first that fits counts, so Gemma's own come first.
constexpr Names kGemma[] = {{"post_attention_layernorm", "post_attention_norm"},
                            {"pre_feedforward_layernorm", "ffn_norm"},
                            {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr Names kGemma4[] = {
    {"per_layer_input_gate", "inp_gate"}, {"per_layer_projection", "proj"}, {"post_per_layer_input_norm", "post_norm"}};
constexpr Names kLfm2[] = {{"operator_norm", "attn_norm"},           {"ffn_norm", "ffn_norm"},
                           {"self_attn.q_layernorm", "attn_q_norm"}, {"self_attn.k_layernorm", "attn_k_norm"},
                           {"self_attn.out_proj", "attn_output"},    {"conv.in_proj", "shortconv.in_proj"},
                           {"conv.conv", "shortconv.conv"},          {"conv.out_proj", "shortconv.out_proj"},
                           {"feed_forward.w1", "ffn_gate"},          {"feed_forward.w3", "ffn_up"},
                           {"feed_forward.w2", "ffn_down"},          {"feed_forward.gate", "ffn_gate_inp"}};
constexpr Names kQwen35[] = {{"post_attention_layernorm", "post_attention_norm"},
                             {"linear_attn.in_proj_qkv", "attn_qkv"},
                             {"linear_attn.in_proj_z", "attn_gate"},
                             {"linear_attn.in_proj_b", "ssm_beta"},
                             {"linear_attn.in_proj_a", "ssm_alpha"},
                             {"linear_attn.conv1d", "ssm_conv1d"},
                             {"linear_attn.norm", "ssm_norm"},
                             {"linear_attn.out_proj", "ssm_out"},
                             {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                             {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                             {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                             {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}};
constexpr Names kGptOss[] = {{"post_attention_layernorm", "post_attention_norm"}};
constexpr Names kDecoder[] = {{"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
                              {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
                              {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
                              {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
                              {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                              {"mlp.down_proj", "ffn_down"},       {"mlp.gate", "ffn_gate_inp"},
                              {"mlp.router", "ffn_gate_inp"}};

// "model.layers.1.mlp.up_proj.weight" -> "blk.1.ffn_up.weight"; empty where there is no such tensor.
std::string gguf_name(const std::string& name, std::span<const Names> own_names) {
  constexpr Names kWhole[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                              {"model.norm.weight", "output_norm.weight"},
                              {"model.embedding_norm.weight", "token_embd_norm.weight"},
                              {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
                              {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
                              {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
                              {"lm_head.weight", "output.weight"}};
  for (const Names& n : kWhole)
    if (name == n.hugging_face) return n.gguf;
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return {};
  const size_t dot = name.find('.', kLayers.size()), end = name.rfind('.');
  const std::string layer = name.substr(kLayers.size(), dot - kLayers.size()),
                    step = name.substr(dot + 1, end - dot - 1);
  const auto in = [&](std::span<const Names> table) -> std::string {
    for (const Names& n : table)
      if (step == n.hugging_face) return fmt::format("blk.{}.{}{}", layer, n.gguf, name.substr(end));
    return {};
  };
  if (name.ends_with("layer_scalar")) return fmt::format("blk.{}.layer_output_scale.weight", layer);
  if (name.ends_with("linear_attn.A_log")) return fmt::format("blk.{}.ssm_a", layer);
  if (name.ends_with("feed_forward.expert_bias")) return fmt::format("blk.{}.exp_probs_b.bias", layer);
  if (name.ends_with("linear_attn.dt_bias")) return fmt::format("blk.{}.ssm_dt.bias", layer);
  for (const std::span<const Names> table : {own_names, std::span<const Names>(kGemma4)})
    if (std::string own = in(table); !own.empty()) return own;
  return in(kDecoder);
}

// Rows i and i + d/2 of each head become neighbours.
std::vector<float> paired(const std::vector<float>& values, int64_t heads, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(values.size()) / rows, d = rows / heads;
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = r % d, to = r - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
    std::copy_n(values.begin() + r * columns, columns, out.begin() + to * columns);
  }
  return out;
}

// Value heads from blocks by key head to every key_heads-th, in rows from `first_row` on or, of an output projection,
// in columns; `size` rows or columns a head.
struct Heads {
  int64_t key_heads = 0, value_heads = 0;
  int64_t tiled(int64_t i, int64_t size) const {
    const int64_t head = i / size, shared = value_heads / key_heads;
    return (head % shared * key_heads + head / shared) * size + i % size;
  }
};
std::vector<float> tiled(const std::vector<float>& values, const Heads& heads, int64_t rows, int64_t first_row,
                         bool columns) {
  const int64_t width = static_cast<int64_t>(values.size()) / rows;
  const int64_t size = (columns ? width : rows - first_row) / heads.value_heads;
  std::vector<float> out = values;
  for (int64_t r = columns ? 0 : first_row; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t to =
          columns ? r * width + heads.tiled(c, size) : (first_row + heads.tiled(r - first_row, size)) * width + c;
      out[static_cast<size_t>(to)] = values[static_cast<size_t>(r * width + c)];
    }
  return out;
}

// The frequencies' divisors of Llama 3.
std::vector<float> llama3_factors(const json& rope, double theta, int64_t d) {
  const double factor = rope["factor"], low = rope["low_freq_factor"], high = rope["high_freq_factor"],
               length = rope["original_max_position_embeddings"];
  std::vector<float> factors;
  for (int64_t i = 0; i < d; i += 2) {
    const double wave = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(d));
    const double smooth = (length / wave - low) / (high - low);
    const double divisor = wave < length / high  ? 1
                           : wave > length / low ? factor
                                                 : 1 / ((1 - smooth) / factor + smooth);
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

struct Tensor {
  std::string name;
  std::vector<uint64_t> dimensions;  // innermost first
  std::vector<float> values;
};

class Writer {
 public:
  Writer(const Golden& golden, const TinyGguf& how) : golden_(golden), how_(how), c_(json::parse(golden.config)) {
    arch_ = golden.family.substr(0, golden.family.find('-'));
    if (arch_ == "qwen3_5") arch_ = "qwen35";
    if (arch_ == "qwen3_5_moe") arch_ = "qwen35moe";
    if (arch_ == "lfm2_moe") arch_ = "lfm2moe";
    if (arch_ == "qwen3_moe") arch_ = "qwen3moe";
    if (arch_ == "gpt_oss") arch_ = "gpt-oss";
    heads_ = c_["num_attention_heads"];
    kv_heads_ = c_["num_key_value_heads"];
    head_dim_ = c_.value("head_dim", c_["hidden_size"].get<int64_t>() / heads_);
    rope_ = c_.contains("rope_parameters") ? c_["rope_parameters"] : c_.value("rope_scaling", json::object());
    theta_ = rope_.value("rope_theta", c_.value("rope_theta", 10000.0));
  }

  Result<std::string> file() {
    add_keys();
    RETURN_IF_ERROR(add_tensors());
    GgufBytes out;
    out.header(tensors_.size(), keys_count_).data(keys_.bytes());
    std::string data;
    for (const Tensor& t : tensors_) {
      data.resize((data.size() + 31) / 32 * 32);
      out.tensor(t.name, t.dimensions, kF32, data.size());
      data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
    }
    return out.pad().data(data).bytes();
  }

 private:
  void number(const std::string& name, const json& value) {
    ++keys_count_;
    const std::string key = name.starts_with("general.") ? name : fmt::format("{}.{}", arch_, name);
    if (value.is_string())
      keys_.key_text(key, value.get<std::string>());
    else if (value.is_number_float())
      keys_.key_f32(key, value.get<float>());
    else
      keys_.key_u32(key, value.get<uint32_t>());
  }

  void add_keys() {
    number("general.architecture", arch_);
    number("block_count", c_["num_hidden_layers"]);
    number("context_length", c_["max_position_embeddings"]);
    number("embedding_length", c_["hidden_size"]);
    if (!is_gemma4()) number("feed_forward_length", mlp_width());
    number("attention.head_count", heads_);
    if (is_lfm2())
      add_lfm2_keys();
    else if (is_gemma4())
      add_gemma4_keys();
    else
      number("attention.head_count_kv", kv_heads_);
    number("attention.layer_norm_rms_epsilon", c_[is_lfm2() ? "norm_eps" : "rms_norm_eps"].get<double>());
    if (is_qwen35()) add_qwen35_keys();
    number("rope.freq_base", theta_);
    if (c_.contains("head_dim") && !is_gemma4()) number("attention.key_length", head_dim_);
    if (c_.contains("num_experts_per_tok")) {
      number("expert_count", c_.contains("num_experts") ? c_["num_experts"] : c_["num_local_experts"]);
      number("expert_used_count", c_["num_experts_per_tok"]);
      number("expert_feed_forward_length", c_[arch_ == "gpt-oss" ? "intermediate_size" : "moe_intermediate_size"]);
    }
    if (c_.contains("shared_expert_intermediate_size"))
      number("expert_shared_feed_forward_length", c_["shared_expert_intermediate_size"]);
    if (arch_ == "gpt-oss") number("attention.sliding_window", c_["sliding_window"]);
    if (arch_ == "gemma3") number("attention.sliding_window", c_["sliding_window"]);
    if (arch_ == "granite") {
      number("embedding_scale", c_["embedding_multiplier"].get<double>());
      number("attention.scale", c_["attention_multiplier"].get<double>());
      number("residual_scale", c_["residual_multiplier"].get<double>());
      number("logit_scale", c_["logits_scaling"].get<double>());
    }
    if (const std::string type = rope_.value("rope_type", "default"); type == "linear" || type == "yarn") {
      number("rope.scaling.type", type);
      number("rope.scaling.factor", rope_["factor"].get<double>());
      if (type == "yarn") number("rope.scaling.original_context_length", rope_["original_max_position_embeddings"]);
    }
  }

  bool is_lfm2() const { return arch_.starts_with("lfm2"); }
  bool is_gemma4() const { return arch_ == "gemma4"; }
  bool is_qwen35() const { return arch_.starts_with("qwen35"); }

  int64_t mlp_width() const {
    if (arch_ == "qwen35moe") return c_["moe_intermediate_size"];
    for (const TinyTensor& t : golden_.tensors)
      if (t.name.ends_with("layers.0.feed_forward.w1.weight")) return t.shape[0];
    return c_["intermediate_size"];
  }

  void add_lfm2_keys() {
    std::vector<uint32_t> heads;
    for (const json& kind : c_["layer_types"]) heads.push_back(kind == "conv" ? 0 : static_cast<uint32_t>(kv_heads_));
    ++keys_count_;
    keys_.key_numbers(arch_ + ".attention.head_count_kv", 4, heads);
    if (arch_ == "lfm2moe") {
      number("leading_dense_block_count", c_["num_dense_layers"]);
      number("expert_gating_func", 2);
      if (c_.contains("routed_scaling_factor"))
        number("expert_weights_scale", c_["routed_scaling_factor"].get<double>());
    }
    number("shortconv.l_cache", c_["conv_L_cache"]);
  }

  template <class T>
  void numbers(const std::string& name, uint32_t kind, const std::vector<T>& values) {
    ++keys_count_;
    keys_.key_numbers(fmt::format("{}.{}", arch_, name), kind, values);
  }

  // Widths of MLPs as a list where they differ; heads of layers that see everything under the plain names.
  void add_gemma4_keys() {
    const auto layers = c_["num_hidden_layers"].get<size_t>(), shared = c_.value("num_kv_shared_layers", size_t{0});
    const auto width = c_["intermediate_size"].get<uint32_t>();
    std::vector<uint32_t> widths(layers, width), kv;
    std::vector<uint8_t> slides;
    for (size_t i = 0; i < layers; ++i) {
      slides.push_back(c_["layer_types"][i] == "sliding_attention");
      kv.push_back(of_layer(i, "num_key_value_heads", "num_global_key_value_heads", kv_heads_));
      if (i >= layers - shared && c_["use_double_wide_mlp"] == true) widths[i] = 2 * width;
    }
    const auto full = static_cast<size_t>(std::ranges::find(slides, 0) - slides.begin());
    if (widths.front() == widths.back())
      number("feed_forward_length", width);
    else
      numbers("feed_forward_length", 5, widths);
    if (kv[0] == kv[full])
      number("attention.head_count_kv", kv[0]);
    else
      numbers("attention.head_count_kv", 5, kv);
    numbers("attention.sliding_window_pattern", 7, slides);
    number("attention.sliding_window", c_["sliding_window"]);
    number("attention.shared_kv_layers", shared);
    number("embedding_length_per_layer_input", c_["hidden_size_per_layer_input"]);
    number("attention.key_length", of_layer(full, "head_dim", "global_head_dim", 0));
    number("attention.key_length_swa", head_dim_);
    number("final_logit_softcapping", c_["final_logit_softcapping"].get<double>());
    number("rope.freq_base_swa", rope_["sliding_attention"]["rope_theta"].get<double>());
    theta_ = rope_["full_attention"]["rope_theta"];
    const int64_t pairs = of_layer(full, "head_dim", "global_head_dim", 0) / 2;
    std::vector<float> factors(static_cast<size_t>(pairs), 1e30f);
    const double live = rope_["full_attention"]["partial_rotary_factor"].get<double>() * static_cast<double>(pairs);
    std::fill_n(factors.begin(), static_cast<ptrdiff_t>(live), 1.0f);
    tensors_.push_back({"rope_freqs.weight", {factors.size()}, std::move(factors)});
  }

  // In either dialect: by the layer's number, or by what layers that see everything have.
  uint32_t of_layer(size_t layer, const char* key, const char* full_key, int64_t otherwise) const {
    const json own = c_.value("per_layer_config", json::object()).value(std::to_string(layer), json::object());
    if (own.contains(key)) return own[key];
    if (c_["layer_types"][layer] == "full_attention" && c_.contains(full_key)) return c_[full_key];
    return static_cast<uint32_t>(otherwise);
  }

  void add_qwen35_keys() {
    heads_of_delta_ = {c_["linear_num_key_heads"], c_["linear_num_value_heads"]};
    number("ssm.conv_kernel", c_["linear_conv_kernel_dim"]);
    number("ssm.state_size", c_["linear_key_head_dim"]);
    number("ssm.group_count", heads_of_delta_.key_heads);
    number("ssm.time_step_rank", heads_of_delta_.value_heads);
    number("ssm.inner_size", heads_of_delta_.value_heads * c_["linear_value_head_dim"].get<int64_t>());
    number("rope.dimension_count",
           static_cast<int64_t>(static_cast<double>(head_dim_) * rope_.value("partial_rotary_factor", 0.25)));
    int64_t interval = 1;
    while (c_["layer_types"][static_cast<size_t>(interval - 1)] != "full_attention") ++interval;
    number("full_attention_interval", interval);
  }

  std::span<const Names> own_names() const {
    if (arch_ == "gemma3" || is_gemma4()) return kGemma;
    if (is_lfm2()) return kLfm2;
    if (is_qwen35()) return kQwen35;
    if (arch_ == "gpt-oss") return kGptOss;
    return {};
  }

  Result<void> add_tensors() {
    for (const TinyTensor& t : golden_.tensors) {
      if (t.name.find(".experts.") != t.name.npos) {
        add_experts(t);
        continue;
      }
      if (t.name.ends_with(".sinks")) {
        tensors_.push_back(
            {fmt::format("blk.{}.attn_sinks.weight", layer_of(t)), {t.shape.rbegin(), t.shape.rend()}, values_of(t)});
        continue;
      }
      const std::string name = gguf_name(t.name, own_names());
      if (name.empty()) return error(Code::unsupported, "{}: no GGUF name for '{}'", golden_.name, t.name);
      std::vector<uint64_t> dimensions(t.shape.rbegin(), t.shape.rend());
      if (dimensions.size() == 3) std::erase(dimensions, 1);         // of convolutions
      if (name.ends_with("inp_shexp.weight")) dimensions.resize(1);  // one row is a vector there
      tensors_.push_back({name, std::move(dimensions), values_of(t)});
    }
    if (rope_.value("rope_type", "default") == "llama3") {
      auto factors = llama3_factors(rope_, theta_, head_dim_);
      tensors_.push_back({"rope_freqs.weight", {factors.size()}, std::move(factors)});
    }
    return {};
  }

  static std::string layer_of(const TinyTensor& t) {
    constexpr size_t kAt = std::string_view("model.layers.").size();
    return t.name.substr(kAt, t.name.find('.', kAt) - kAt);
  }

  // A stack of experts, or of their biases, by itself; gates and ups apart, which gpt-oss has in turns and transposed.
  void add_experts(const TinyTensor& t) {
    const std::vector<float> values = draw_tensor(golden_.seed, t);
    const bool fused = t.name.find("gate_up_proj") != t.name.npos, bias = t.shape.size() == 2;
    const bool transposed = arch_ == "gpt-oss" && !bias;
    const int64_t all = t.shape[transposed ? 2 : 1], columns = bias ? 1 : t.shape[transposed ? 1 : 2];
    const int64_t rows = fused ? all / 2 : all;
    if (fused && how_.fused_experts) {
      tensors_.push_back(
          {fmt::format("blk.{}.ffn_gate_up_exps.weight", layer_of(t)), {t.shape.rbegin(), t.shape.rend()}, values});
      return;
    }
    for (const char* part : fused ? std::vector{"gate", "up"} : std::vector{"down"}) {
      const int64_t second = std::string_view(part) == "up" ? 1 : 0;
      Tensor out{fmt::format("blk.{}.ffn_{}_exps.{}", layer_of(t), part, bias ? "bias" : "weight"), {}, {}};
      if (!bias) out.dimensions.push_back(static_cast<uint64_t>(columns));
      for (const int64_t n : {rows, t.shape[0]}) out.dimensions.push_back(static_cast<uint64_t>(n));
      for (int64_t e = 0; e < t.shape[0]; ++e)
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t row = !fused ? r : arch_ == "gpt-oss" ? 2 * r + second : second * rows + r;
          for (int64_t k = 0; k < columns; ++k) {
            const int64_t at = transposed ? k * all + row : row * columns + k;
            out.values.push_back(values[static_cast<size_t>(e * all * columns + at)]);
          }
        }
      tensors_.push_back(std::move(out));
    }
  }

  std::vector<float> values_of(const TinyTensor& t) const {
    std::vector<float> values = draw_tensor(golden_.seed, t);
    if (arch_ == "gemma3" && t.name.ends_with("norm.weight"))
      for (float& x : values) x += 1;
    if (is_qwen35()) return qwen35_values(t, std::move(values));
    const bool pairs = (arch_ == "llama" || arch_ == "granite") && how_.pair_rows;
    if (pairs && t.name.find("q_proj") != t.name.npos) return paired(values, heads_, t.shape[0]);
    if (pairs && t.name.find("k_proj") != t.name.npos) return paired(values, kv_heads_, t.shape[0]);
    return values;
  }

  // Norms plus one, -e^A, value heads tiled.
  std::vector<float> qwen35_values(const TinyTensor& t, std::vector<float> values) const {
    const auto is = [&t](std::string_view part) { return t.name.find(part) != t.name.npos; };
    if (!is("linear_attn")) {
      if (t.name.ends_with("norm.weight"))
        for (float& x : values) x += 1;
      return values;
    }
    if (is("A_log"))
      for (float& x : values) x = -std::exp(x);
    if (is("linear_attn.norm") || !how_.tile_heads) return values;
    const int64_t keys = 2 * heads_of_delta_.key_heads * c_["linear_key_head_dim"].get<int64_t>();
    return tiled(values, heads_of_delta_, t.shape[0], is("in_proj_qkv") || is("conv1d") ? keys : 0, is("out_proj"));
  }

  const Golden& golden_;
  TinyGguf how_;
  json c_, rope_;
  std::string arch_;
  int64_t heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
  Heads heads_of_delta_;
  double theta_ = 0;
  GgufBytes keys_;
  uint64_t keys_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace

Result<void> write_tiny_gguf(const Golden& golden, const std::filesystem::path& path, const TinyGguf& how) {
  const auto file = Writer(golden, how).file();
  RETURN_IF_ERROR(file);
  std::ofstream out(path, std::ios::binary);
  out.write(file->data(), static_cast<std::streamsize>(file->size()));
  if (!out.flush()) return error(Code::io, "{}: cannot be written", path.string());
  return {};
}

}  // namespace onw::testing
