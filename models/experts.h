// Mixtures of experts in place of a gated MLP: what families have in common.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "models/config.h"

namespace onw {

// How a layer chooses experts, and how large they are. count 0: none.
struct Experts {
  int64_t count = 0, used = 0, intermediate = 0;
  std::string kind = "softmax";  // graph/ops.inc: route
  bool renormalise = false;
  double eps = 0;  // of renormalise
  double scale = 1;
  bool biases = false;          // of the router and of every expert's three products
  bool choice_bias = false;     // added to the scores to choose by, not to the weights
  double limit = 0, alpha = 0;  // of swiglu_clamped
};

// `count_key`, `used_key` and `width_key` as config.json calls them. Errors: bad_format, naming the key: a number of
// experts that is not 1 to kMostExperts, more experts used than there are, a width that is missing.
Result<Experts> read_experts(const Config& config, std::string_view count_key, std::string_view used_key,
                             std::string_view width_key);

// Where the three weights of each expert come from; "{e}" is its number (graph/program.h: WeightSource).
struct ExpertSources {
  WeightSource gate, up, down;
  WeightSource gate_bias = {}, up_bias = {}, down_bias = {};  // where there are biases
};

// The published names of a layer's experts: router and stacks, without "layers.3." and "blk.3.".
struct ExpertNames {
  std::vector<std::string> router;  // alternatives: "mlp.gate.weight"
  ExpertSources hugging_face;
  std::vector<std::string> router_bias = {};
  std::vector<std::string> choice_bias = {}, gguf_choice_bias = {"exp_probs_b.bias"};
  std::vector<std::string> gguf_router = {"ffn_gate_inp.weight"}, gguf_router_bias = {"ffn_gate_inp.bias"};
  ExpertSources gguf = {{{"ffn_gate_exps.weight"}}, {{"ffn_up_exps.weight"}}, {{"ffn_down_exps.weight"}},
                        {{"ffn_gate_exps.bias"}},   {{"ffn_up_exps.bias"}},   {{"ffn_down_exps.bias"}}};
};

// Names of experts under `prefix` ("mlp.experts.") as Hugging Face writes them: one tensor an expert, its gate, up and
// down called `single` ("gate_proj"), or one stack a layer with gates over ups. GGUF files may have that stack as well.
ExpertNames stacked_or_single(const Experts& experts, const std::string& prefix,
                              const std::array<std::string_view, 3>& single);

// The metadata of a GGUF file "<arch>.…" with a width of an MLP, which files whose layers all have experts may leave
// out.
Json with_mlp_width(const Json& metadata, std::string_view arch);

// Counts and width of its experts into the config.json `c`, under `count_key`, "num_experts_per_tok" and `width_key`.
// Errors: bad_format, naming the key of the file: missing, not a positive number, more experts used than there are.
Result<void> experts_from_gguf(const Json& metadata, std::string_view arch, const char* count_key,
                               const char* width_key, Json& c);

// h [S, hidden] -> [S, hidden]: the router's logits, its choice, the experts and their weighted sum. Weights are
// "layers.N.router" and "layers.N.experts.gate", ".up" and ".down", biases the same with ".bias", and
// "layers.N.router.choice_bias".
Value routed_experts(Builder& b, const Experts& experts, const ExpertNames& names, int layer, Value h,
                     std::string_view activation);

}  // namespace onw
