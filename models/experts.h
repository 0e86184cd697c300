// Mixtures of experts in place of a gated MLP: what families have in common.
#pragma once

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
  std::vector<std::string> gguf_router = {"ffn_gate_inp.weight"}, gguf_router_bias = {"ffn_gate_inp.bias"};
  ExpertSources gguf = {{{"ffn_gate_exps.weight"}}, {{"ffn_up_exps.weight"}}, {{"ffn_down_exps.weight"}},
                        {{"ffn_gate_exps.bias"}},   {{"ffn_up_exps.bias"}},   {{"ffn_down_exps.bias"}}};
};

// h [S, hidden] -> [S, hidden]: the router's logits, its choice, the experts and their weighted sum. Weights are
// "layers.N.router" and "layers.N.experts.gate", ".up" and ".down", biases the same with ".bias".
Value routed_experts(Builder& b, const Experts& experts, const ExpertNames& names, int layer, Value h,
                     std::string_view activation);

}  // namespace onw
