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
constexpr Names kDecoder[] = {{"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
                              {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
                              {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
                              {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
                              {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                              {"mlp.down_proj", "ffn_down"}};

// "model.layers.1.mlp.up_proj.weight" -> "blk.1.ffn_up.weight"; empty where there is no such tensor.
std::string gguf_name(const std::string& name, bool gemma) {
  constexpr Names kWhole[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                              {"model.norm.weight", "output_norm.weight"},
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
  const std::string own = gemma ? in(kGemma) : "";
  return own.empty() ? in(kDecoder) : own;
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
    number("feed_forward_length", c_["intermediate_size"]);
    number("attention.head_count", heads_);
    number("attention.head_count_kv", kv_heads_);
    number("attention.layer_norm_rms_epsilon", c_["rms_norm_eps"].get<double>());
    number("rope.freq_base", theta_);
    if (c_.contains("head_dim")) number("attention.key_length", head_dim_);
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

  Result<void> add_tensors() {
    for (const TinyTensor& t : golden_.tensors) {
      const std::string name = gguf_name(t.name, arch_ == "gemma3");
      if (name.empty()) return error(Code::unsupported, "{}: no GGUF name for '{}'", golden_.name, t.name);
      tensors_.push_back({name, {t.shape.rbegin(), t.shape.rend()}, values_of(t)});
    }
    if (rope_.value("rope_type", "default") == "llama3") {
      auto factors = llama3_factors(rope_, theta_, head_dim_);
      tensors_.push_back({"rope_freqs.weight", {factors.size()}, std::move(factors)});
    }
    return {};
  }

  std::vector<float> values_of(const TinyTensor& t) const {
    std::vector<float> values = draw_tensor(golden_.seed, t);
    if (arch_ == "gemma3" && t.name.ends_with("norm.weight"))
      for (float& x : values) x += 1;
    const bool pairs = (arch_ == "llama" || arch_ == "granite") && how_.pair_rows;
    if (pairs && t.name.find("q_proj") != t.name.npos) return paired(values, heads_, t.shape[0]);
    if (pairs && t.name.find("k_proj") != t.name.npos) return paired(values, kv_heads_, t.shape[0]);
    return values;
  }

  const Golden& golden_;
  TinyGguf how_;
  json c_, rope_;
  std::string arch_;
  int64_t heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
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
