// Qwen3.5, text: the gated delta rule in three layers of four, else attention whose result is gated and whose heads
// turn in part; norms are stored as an offset from 1 (transformers models/qwen3_5). Images are not built.
#include "models/qwen3_5.h"

#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "models/families.h"
#include "models/gated_delta.h"
#include "models/layer_kinds.h"
#include "models/mtp.h"

namespace onw {
namespace {

// Every interval-th layer attends, where the config does not list them.
std::vector<std::string> layer_kinds(const Config& config, int64_t layers) {
  if (auto kinds = config.strings("layer_types"); !kinds.empty()) return kinds;
  const int64_t interval = std::max<int64_t>(1, config.integer("full_attention_interval", 4));
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < layers; ++i)
    kinds.emplace_back((i + 1) % interval == 0 ? "full_attention" : "linear_attention");
  return kinds;
}

}  // namespace

Value qwen3_5_mixed(Builder& b, const DecoderConfig& c, int layer, Value x) {
  const Scope scope(b, layer);
  DecoderBlock words(b, c, layer);
  const Value h = words.norm("mixer_norm", x, "attn_norm", c.names.mixer_norm, "attn_norm");
  return words.residual("mixer_add", x,
                        c.mixer(layer) == Mixer::gated_delta ? gated_delta(b, c, layer, h) : words.attention(h));
}

Value qwen3_5_block(Builder& b, const DecoderConfig& c, int layer, Value x) {
  x = qwen3_5_mixed(b, c, layer, x);
  const Scope scope(b, layer);
  DecoderBlock words(b, c, layer);
  const Value h = words.norm("mlp_norm", x, "mlp_norm", c.names.mlp_norm, c.names.gguf_mlp_norm);
  return words.residual("mlp_add", x, c.experts.count > 0 ? qwen3_5_experts(b, c, layer, h) : words.mlp(h));
}

Result<DecoderConfig> read_qwen3_5_config(std::string_view family, const Config& config) {
  auto c = read_decoder_config(family, config);
  RETURN_IF_ERROR(c);
  if (config.boolean("attention_bias", false))
    return error(Code::unsupported, "config.json: 'attention_bias' is true, which no published {} has", family);
  c->qk_norm = true;
  c->norm_fold = config.boolean("onw_norms_hold_one", false) ? Fold::none : Fold::add_one;  // as MLX saves them
  c->output_gate = config.boolean("attn_output_gate", true);
  RETURN_IF_ERROR(read_mixers(layer_kinds(config, c->layers), "linear_attention", Mixer::gated_delta, *c));
  auto delta = read_gated_delta(config);
  RETURN_IF_ERROR(delta);
  c->delta = *delta;
  c->names.gguf_mlp_norm = "post_attention_norm";
  const double part =
      config.rope_parameters("", 10000).number("partial_rotary_factor", config.number("partial_rotary_factor", 0.25));
  if (!(part > 0 && part <= 1))
    return error(Code::bad_format, "config.json: 'partial_rotary_factor' is {}, expected more than 0 and at most 1",
                 part);
  auto rope = config.rope("rope", "", static_cast<int64_t>(part * static_cast<double>(c->head_dim) + 1e-6), 10000);
  RETURN_IF_ERROR(rope);
  c->ropes = {std::move(*rope)};
  return c;
}

Result<Program> build_qwen3_5(const Config& config) {
  const auto c = read_qwen3_5_config("qwen3_5", config);
  RETURN_IF_ERROR(c);
  return decoder_program(*c, qwen3_5_block);
}

Result<Program> build_qwen3_5_mtp(const Config& config, int64_t short_vocabulary) {
  auto c = read_qwen3_5_config("qwen3_5", config);
  RETURN_IF_ERROR(c);
  return mtp_program(std::move(*c), qwen3_5_block, short_vocabulary);
}

// Value heads lie there tiled, the norms' ones and -e^A are in the values (docs/model_folder.md).
Result<Json> qwen3_5_config_from_gguf_keys(const Json& metadata, std::string_view arch, std::string_view model_type,
                                           std::string_view architecture) {
  auto c = decoder_config_from_gguf(metadata, arch, model_type, architecture);
  RETURN_IF_ERROR(c);
  const auto integer = [&](std::string_view key) -> Result<int64_t> {
    const auto n = find_int(metadata, fmt::format("{}.{}", arch, key));
    if (!n || *n < 1) return error(Code::bad_format, "the GGUF file's '{}.{}' is no positive number", arch, key);
    return *n;
  };
  int64_t heads = 0, inner = 0;
  for (const auto& [from, to] :
       {std::pair{"ssm.group_count", "linear_num_key_heads"}, std::pair{"ssm.time_step_rank", "linear_num_value_heads"},
        std::pair{"ssm.state_size", "linear_key_head_dim"}, std::pair{"ssm.inner_size", "linear_value_head_dim"},
        std::pair{"ssm.conv_kernel", "linear_conv_kernel_dim"}}) {
    const auto n = integer(from);
    RETURN_IF_ERROR(n);
    (*c)[to] = *n;
  }
  heads = (*c)["linear_num_value_heads"].get<int64_t>(), inner = (*c)["linear_value_head_dim"].get<int64_t>();
  if (inner % heads != 0)
    return error(Code::bad_format, "the GGUF file's '{}.ssm.inner_size' is {}, no multiple of its {} heads", arch,
                 inner, heads);
  (*c)["linear_value_head_dim"] = inner / heads;
  (*c)["onw_tiled_value_heads"] = true;
  (*c)["full_attention_interval"] = find_int(metadata, fmt::format("{}.full_attention_interval", arch)).value_or(4);
  if (const auto mtp = find_int(metadata, fmt::format("{}.nextn_predict_layers", arch)); mtp && *mtp > 0) {
    (*c)["num_hidden_layers"] = find_int(*c, "num_hidden_layers").value_or(0) - *mtp;
    (*c)["mtp_num_hidden_layers"] = *mtp;
  }
  const auto rotary = integer("rope.dimension_count");
  RETURN_IF_ERROR(rotary);
  const double dim = find_number(*c, "head_dim").value_or(0);
  if (!(dim >= 1)) return error(Code::bad_format, "the GGUF file has no '{}.attention.key_length'", arch);
  (*c)["partial_rotary_factor"] = static_cast<double>(*rotary) / dim;
  return c;
}

Result<Json> qwen3_5_config_from_gguf(const Json& metadata) {
  return qwen3_5_config_from_gguf_keys(metadata, "qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM");
}

}  // namespace onw
