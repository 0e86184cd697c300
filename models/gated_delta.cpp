#include "models/gated_delta.h"

#include <cmath>

#include "graph/ops.h"

namespace onw {

Result<GatedDeltaConfig> read_gated_delta(const Config& config) {
  GatedDeltaConfig d;
  const std::tuple<std::string_view, int64_t*, int64_t> sizes[] = {{"linear_num_key_heads", &d.key_heads, 1 << 12},
                                                                   {"linear_num_value_heads", &d.value_heads, 1 << 12},
                                                                   {"linear_key_head_dim", &d.key_dim, 1024},
                                                                   {"linear_value_head_dim", &d.value_dim, 1024},
                                                                   {"linear_conv_kernel_dim", &d.kernel, 64}};
  for (const auto& [key, field, most] : sizes) {
    const auto n = config.dimension(key);
    RETURN_IF_ERROR(n);
    if (*n > most) return error(Code::bad_format, "config.json: '{}' is {}, expected at most {}", key, *n, most);
    *field = *n;
  }
  if (d.value_heads % d.key_heads != 0)
    return error(Code::bad_format,
                 "config.json: 'linear_num_value_heads' is {}, no multiple of 'linear_num_key_heads', which is {}",
                 d.value_heads, d.key_heads);
  d.tiled = config.boolean("onw_tiled_value_heads", false);
  return d;
}

namespace {

class GatedDelta {
 public:
  GatedDelta(Builder& b, const DecoderConfig& c, int layer)
      : b_(b),
        c_(c),
        d_(c.delta),
        layer_(layer),
        block_(b, c, layer),
        keys_(d_.key_heads * d_.key_dim),
        values_(d_.value_heads * d_.value_dim) {}

  Value mix(Value h) {
    const Value mixed = block_.project("qkv_proj", h, "delta.qkv", 2 * keys_ + values_, "linear_attn.in_proj_qkv",
                                       "attn_qkv", false, "delta.in");
    const Value z =
        block_.project("z_proj", h, "delta.z", values_, "linear_attn.in_proj_z", "attn_gate", false, "delta.in");
    const Value beta =
        activate("beta", gate("beta_proj", h, "delta.beta", "linear_attn.in_proj_b", "ssm_beta"), "sigmoid");
    const Value g = log_decay(gate("decay_proj", h, "delta.alpha", "linear_attn.in_proj_a", "ssm_alpha"));
    const Value y = activate("qkv_silu", convolved(mixed), "silu");
    const Value q = unit(y, "q", 0), k = unit(y, "k", keys_);
    const Value v = heads("v", b_.slice("v", y, 1, 2 * keys_, 2 * keys_ + values_), d_.value_heads, d_.value_dim);
    const Value out = b_.node(Op::gated_delta, "delta",
                              {b_.scale("q_scaled", q, 1 / std::sqrt(static_cast<double>(d_.key_dim))), k, v, g, beta},
                              delta_attributes());
    const Value w = block_.vector("delta.norm", {d_.value_dim}, {{"linear_attn.norm.weight"}}, "ssm_norm.weight");
    const Value normed = b_.reshape("delta_rows", b_.rms_norm("delta_norm", out, w, c_.norm_eps), {kRows, values_});
    return block_.project("out_proj", b_.gated("delta_gated", z, normed, "silu"), "delta.out", c_.hidden,
                          "linear_attn.out_proj", "ssm_out", false, "");
  }

 private:
  std::string name(std::string_view what) const { return fmt::format("{}.{}", what, layer_); }

  Value activate(std::string_view step, Value x, std::string_view kind) {
    return b_.node(Op::activate, step, {x}, {{"activation", std::string(kind)}});
  }

  Value heads(std::string_view what, Value x, int64_t count, int64_t dim) {
    return b_.reshape(fmt::format("{}_heads", what), x, {kRows, count, dim});
  }

  // One number a value head. A row of these weights decides what a whole head keeps, so they stay plain.
  Value gate(std::string_view step, Value h, std::string_view weight, std::string_view hf, std::string_view gguf) {
    const std::string prefix = fmt::format("layers.{}.", layer_);
    return b_.linear(step, h,
                     b_.weight({.name = prefix + std::string(weight),
                                .shape = {d_.value_heads, c_.hidden},
                                .role = WeightRole::router,
                                .hugging_face = {{fmt::format("{}{}.weight", prefix, hf)}},
                                .gguf = {{fmt::format("blk.{}.{}.weight", layer_, gguf)}},
                                .group = prefix + "delta.gates"}));
  }

  // GGUF files hold -e^A where the published ones hold A.
  Value log_decay(Value a) {
    const Value bias = block_.vector("delta.dt_bias", {d_.value_heads}, {{"linear_attn.dt_bias"}}, "ssm_dt.bias");
    const Value rate =
        block_.vector("delta.decay", {d_.value_heads}, {{"linear_attn.A_log"}, Fold::minus_exp}, "ssm_a");
    return b_.node(Op::multiply, "log_decay", {activate("softplus", b_.add("decay_bias", a, bias), "softplus"), rate});
  }

  Value convolved(Value mixed) {
    const int64_t channels = 2 * keys_ + values_;
    b_.state({.name = name("conv"), .kind = StateKind::conv, .layer = layer_, .heads = channels, .kernel = d_.kernel});
    const Value w =
        block_.vector("delta.kernel", {channels, d_.kernel}, {{"linear_attn.conv1d.weight"}}, "ssm_conv1d.weight");
    return b_.node(Op::conv_update, "conv", {mixed, w}, {{"state", name("conv")}});
  }

  // Heads of unit length, from the columns at `begin`.
  Value unit(Value y, std::string_view what, int64_t begin) {
    const Value x = heads(what, b_.slice(what, y, 1, begin, begin + keys_), d_.key_heads, d_.key_dim);
    return b_.node(Op::l2_norm, fmt::format("{}_unit", what), {x}, {{"eps", 1e-6}});
  }

  Attributes delta_attributes() {
    b_.state({.name = name("delta"),
              .kind = StateKind::delta,
              .layer = layer_,
              .heads = d_.value_heads,
              .head_dim = d_.key_dim,
              .value_dim = d_.value_dim,
              .key_heads = d_.key_heads});
    Attributes a = {{"state", name("delta")}};
    if (d_.tiled) a.set("heads", std::string("tiled"));
    return a;
  }

  Builder& b_;
  const DecoderConfig& c_;
  const GatedDeltaConfig& d_;
  int layer_;
  DecoderBlock block_;
  int64_t keys_, values_;
};

}  // namespace

Value gated_delta(Builder& b, const DecoderConfig& c, int layer, Value h) { return GatedDelta(b, c, layer).mix(h); }

}  // namespace onw
