// What dense decoders have in common: their dimensions, the names of their tensors, attention and the gated MLP. A
// family file reads its config into this and writes its block with these words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "models/config.h"
#include "models/experts.h"

namespace onw {

// How a layer mixes tokens.
enum class Mixer : uint8_t { attention, short_conv, gated_delta };

// What some files name otherwise. Of a layer, without "layers.N." or "blk.N." and without ".weight"; last_norm whole.
struct DecoderNames {
  std::string_view mixer_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm", o = "self_attn.o_proj";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string_view last_norm = "norm";
  std::string_view gguf_mlp_norm = "ffn_norm", gguf_last_norm = "output_norm";
  std::string_view gguf_gate = "ffn_gate", gguf_up = "ffn_up", gguf_down = "ffn_down";
};

// A gated delta rule's sizes (models/gated_delta.h).
struct GatedDeltaConfig {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;
  bool tiled = false;  // value head i goes with key head i mod key_heads, as GGUF files have them
};

// What layers of one model may have each of its own.
struct LayerSizes {
  int64_t head_dim = 0, kv_heads = 0, intermediate = 0;
  int kv_layer = 0;              // whose keys and values it attends to: its own number, or that of an earlier layer
  bool keys_are_values = false;  // v is what k_proj gives, before k's norm and RoPE
};

struct DecoderConfig {
  std::string family;
  int64_t layers = 0, hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0,
          max_context = 0;
  double norm_eps = 1e-6;
  bool tied = false;  // the head is the embedding
  bool qkv_bias = false;
  bool output_bias = false;  // of attention's output projection
  bool mlp_bias = false;
  bool sinks = false;              // a logit per head that only widens softmax's sum
  bool qk_norm = false;            // RMS norm of q and k per head, before RoPE
  bool v_norm = false;             // and of v, without a weight
  bool output_gate = false;        // attention's result times the sigmoid of a gate that lies with q, head by head
  Fold norm_fold = Fold::none;     // of Hugging Face's norms; GGUF files hold the folded value
  Fold gguf_qk_fold = Fold::none;  // of GGUF's q and k rows; Hugging Face's are halves in every family
  std::string activation = "silu";
  double embedding_scale = 1;
  double attention_scale = 0;  // 0: 1/sqrt(head_dim)
  double residual_scale = 1;
  double logits_scale = 1;  // multiplies the logits
  double logits_soft_cap = 0;
  double attention_soft_cap = 0;
  std::vector<LayerSizes> sizes;         // per layer; empty: all alike, as above
  std::vector<int64_t> windows;          // per layer, 0: all; empty: none slides
  std::vector<std::string> layer_ropes;  // per layer, a rope table's name or "" for none; empty: "rope" everywhere
  std::vector<RopeTable> ropes;
  std::vector<Mixer> mixers;  // per layer; empty: attention everywhere
  int64_t conv_kernel = 0;    // of short_conv layers
  bool conv_bias = false;     // of their convolutions and projections
  GatedDeltaConfig delta;     // of gated_delta layers
  DecoderNames names;
  Experts experts;
  std::vector<bool> expert_layers;  // which layers have them in place of the MLP

  LayerSizes layer_sizes(int layer) const {
    return sizes.empty() ? LayerSizes{head_dim, kv_heads, intermediate, layer} : sizes[static_cast<size_t>(layer)];
  }
  bool has_experts(int layer) const { return !expert_layers.empty() && expert_layers[static_cast<size_t>(layer)]; }
  int64_t window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  Mixer mixer(int layer) const { return mixers.empty() ? Mixer::attention : mixers[static_cast<size_t>(layer)]; }
  std::string_view rope(int layer) const {
    return layer_ropes.empty() ? "rope" : std::string_view(layer_ropes[static_cast<size_t>(layer)]);
  }
};

// The keys that every dense decoder has: sizes, eps, tie_word_embeddings. head_dim: the key where `own_head_dim`, else
// hidden / heads.
Result<DecoderConfig> read_decoder_config(std::string_view family, const Config& config, bool own_head_dim = true);

// Its words, bound to a layer. Names: Hugging Face "layers.N.self_attn.q_proj.weight", GGUF "blk.N.attn_q.weight".
class DecoderBlock {
 public:
  DecoderBlock(Builder& builder, const DecoderConfig& config, int layer)
      : b_(builder), c_(config), layer_(layer), sizes_(config.layer_sizes(layer)) {}

  // RMS norm by a weight of the layer.
  Value norm(std::string_view step, Value x, std::string_view name, std::string_view hf, std::string_view gguf);
  // h [S, hidden] -> [S, hidden]: q, k, v, their norms, RoPE, cache, softmax attention, output projection. A layer that
  // reads another's cache has q alone.
  Value attention(Value h);
  // h -> down(activation(gate h) * up h); with `fused_hf`, gate and up are the halves of one Hugging Face tensor
  // "<fused_hf>".
  Value mlp(Value h, std::string_view fused_hf = "", std::string_view down_hf = "");
  // x + residual_scale * y.
  Value residual(std::string_view step, Value x, Value y);

  // A weight of the layer by its plain name; `hf` and `gguf` without the layer's prefix.
  Value matrix(std::string_view name, Shape shape, WeightSource hf, std::string_view gguf, std::string_view group,
               Fold gguf_fold = Fold::none);
  // What stays FP32: norms, biases, kernels of convolutions; `hf` and `gguf` with their endings.
  Value vector(std::string_view name, Shape shape, WeightSource hf, std::string_view gguf);
  // x times a matrix of `out` rows, and a bias where there is one; `hf` and `gguf` without ".weight" and ".bias".
  Value project(std::string_view step, Value x, std::string_view name, int64_t out, std::string_view hf,
                std::string_view gguf, bool bias, std::string_view group, Fold gguf_fold = Fold::none);

 private:
  Value heads(std::string_view what, Value x, int64_t count);
  Value rotate(std::string_view step, Value x);
  Value gated_query(Value h, int64_t width, Value& gate);
  struct KeysAndValues {
    Value k, v;
  };
  KeysAndValues keys_and_values(Value h);
  void write(std::string_view state, const KeysAndValues& projected);

  Builder& b_;
  const DecoderConfig& c_;
  int layer_;
  LayerSizes sizes_;
};

// A whole Program: embedding, `block` per layer, last norm, head.
using BlockFunction = Value (*)(Builder& b, const DecoderConfig& c, int layer, Value x);
Result<Program> decoder_program(const DecoderConfig& config, BlockFunction block);

// Of it, for Programs that are made otherwise: sizes, rotary tables and the embedding; what "body" begins with, its
// inputs, of which "x" is given, and ends with, the last norm; and the function "head".
Program empty_program(const DecoderConfig& config);
Value begin_body(Builder& body, const DecoderConfig& config);
Result<void> finish_body(Builder& body, const DecoderConfig& config, Value x);
Result<void> add_head(Program& program, const DecoderConfig& config);

// The pre-norm block of Llama and its kin: x + attention(norm(x)), x + mlp(norm(x)).
Value pre_norm_block(Builder& b, const DecoderConfig& c, int layer, Value x);
// Gemma's, with norms before and after both halves: x + norm(attention(norm(x))), x + norm(mlp(norm(x))).
Value sandwich_norm_block(Builder& b, const DecoderConfig& c, int layer, Value x);

// config.json from GGUF keys "<arch>.…", as far as every dense decoder has them; `model_type` and `architecture` as
// Hugging Face says.
Result<Json> decoder_config_from_gguf(const Json& metadata, std::string_view arch, std::string_view model_type,
                                      std::string_view architecture);

}  // namespace onw
