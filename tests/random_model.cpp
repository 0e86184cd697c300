#include "tests/random_model.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "models/registry.h"
#include "quant/quantise.h"
#include "store/expert_records.h"

namespace onw::testing {
namespace {

struct Stored {
  std::vector<std::byte> codes, scales, minima;
  WeightView view;
};

// What gemma4 leaves to trained weights: the size of attention's logits, and that of what gates a layer's embedding.
float shrunk(std::string_view family, const WeightDecl& decl) {
  if (family != "gemma4") return 1;
  if (decl.name.ends_with("k_norm")) return 1 / std::sqrt(static_cast<float>(decl.shape[0]));
  return decl.name.ends_with("layer_gate") ? 0.125f : 1.0f;
}

std::vector<float> draw(std::string_view family, const WeightDecl& decl, int64_t outputs, int64_t inputs,
                        uint32_t seed) {
  std::seed_seq mixed{seed, static_cast<uint32_t>(std::hash<std::string>{}(decl.name))};
  std::mt19937 random(mixed);
  std::normal_distribution<float> normal;
  const bool norm = decl.name.find("norm") != std::string::npos || decl.name.ends_with(".scalar");
  const float spread = decl.role == WeightRole::vector ? 0.2f : 1.5f / std::sqrt(static_cast<float>(inputs));
  std::vector<float> values(static_cast<size_t>(outputs * inputs));
  for (float& v : values) v = normal(random) * spread + (norm ? 1.0f : 0.0f);
  if (const float by = shrunk(family, decl); by != 1)
    for (float& v : values) v *= by;
  if (decl.name.ends_with(".decay"))  // minus a rate
    for (float& v : values) v = -std::exp(5 * v);
  if (decl.name.ends_with(".signs"))
    for (float& v : values) v = v < 0 ? -1.0f : 1.0f;
  return values;
}

// The experts of a layer as convert writes them: a record each.
struct Experts {
  ExpertRecords records;
  std::vector<std::byte> memory;
};

void store_experts(std::string_view family, std::vector<WeightDecl*>& parts, const FormatChoice& format, uint32_t seed,
                   Experts& e) {
  e.records = {.name = parts.front()->group, .experts = parts.front()->shape.front(), .parts = {}};
  for (WeightDecl* decl : parts) {
    decl->format = decl->shape.size() > 2 ? fit(format(*decl), decl->shape.back()) : WeightFormat::f32;
    e.records.parts.push_back(
        {.name = decl->name, .format = decl->format, .shape = {decl->shape.begin() + 1, decl->shape.end()}});
  }
  e.memory.resize(static_cast<size_t>(e.records.experts * e.records.record_bytes()));
  for (size_t i = 0; i < parts.size(); ++i) {
    const WeightView all = e.records.view(i, e.memory);
    const auto values = draw(family, *parts[i], all.experts * all.outputs, all.inputs, seed);
    const auto one = static_cast<size_t>(all.outputs * all.inputs);
    for (int64_t n = 0; n < all.experts; ++n) {
      const WeightView w = all.expert(n);
      const auto own = [](std::span<const std::byte> bytes) {
        return std::span(const_cast<std::byte*>(bytes.data()), bytes.size());  // of e.memory
      };
      const auto done = quantise(all.format, std::span(values).subspan(static_cast<size_t>(n) * one, one), all.outputs,
                                 all.inputs, {own(w.codes), own(w.scales), own(w.minima)});
      if (!done) throw std::runtime_error(done.error().message);
    }
  }
}

struct AllStored {
  std::map<std::string, Stored, std::less<>> weights;
  std::map<std::string, Experts, std::less<>> experts;  // by group
};

}  // namespace

RandomModel random_model(const nlohmann::json& config, const FormatChoice& format, uint32_t seed) {
  auto program = build_program(config);
  if (!program) throw std::runtime_error(program.error().message);
  auto stored = std::make_shared<AllStored>();
  std::map<std::string, std::vector<WeightDecl*>> groups;
  for (WeightDecl& decl : program->weights) {
    if (decl.role == WeightRole::expert) {
      groups[decl.group].push_back(&decl);
      continue;
    }
    Stored& s = stored->weights[decl.name];
    const int64_t outputs = decl.shape[0], inputs = decl.shape.size() > 1 ? decl.shape[1] : 1;
    decl.format = decl.role == WeightRole::vector || decl.role == WeightRole::router ? WeightFormat::f32
                                                                                     : fit(format(decl), inputs);
    const WeightBytes bytes = weight_bytes(decl.format, Layout::rows, outputs, inputs);
    s.codes.resize(static_cast<size_t>(bytes.codes));
    s.scales.resize(static_cast<size_t>(bytes.scales));
    s.minima.resize(static_cast<size_t>(bytes.minima));
    const auto done = quantise(decl.format, draw(program->family, decl, outputs, inputs, seed), outputs, inputs,
                               {s.codes, s.scales, s.minima});
    if (!done) throw std::runtime_error(done.error().message);
    s.view = {decl.format, Layout::rows, outputs, inputs, s.codes, s.scales, s.minima};
  }
  for (auto& [group, parts] : groups) {
    Experts& experts = stored->experts[group];
    store_experts(program->family, parts, format, seed, experts);
    for (size_t i = 0; i < parts.size(); ++i)
      stored->weights[parts[i]->name].view = experts.records.view(i, experts.memory);
  }
  return {std::move(*program),
          {[stored](std::string_view name) -> Result<WeightView> {
             const auto found = stored->weights.find(name);
             if (found == stored->weights.end()) return error(Code::missing_tensor, "no weight '{}'", name);
             return found->second.view;
           },
           stored}};
}

nlohmann::json tiny_config(std::string_view family, int64_t hidden) {
  const std::map<std::string_view, const char*> classes = {{"llama", "LlamaForCausalLM"},
                                                           {"qwen2", "Qwen2ForCausalLM"},
                                                           {"qwen3", "Qwen3ForCausalLM"},
                                                           {"granite", "GraniteForCausalLM"},
                                                           {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
                                                           {"qwen3_moe", "Qwen3MoeForCausalLM"},
                                                           {"gpt_oss", "GptOssForCausalLM"},
                                                           {"gemma3", "Gemma3ForCausalLM"},
                                                           {"gemma4", "Gemma4ForCausalLM"},
                                                           {"lfm2", "Lfm2ForCausalLM"},
                                                           {"lfm2_moe", "Lfm2MoeForCausalLM"},
                                                           {"qwen3_5", "Qwen3_5ForCausalLM"},
                                                           {"qwen3_5_moe", "Qwen3_5MoeForCausalLM"}};
  const int64_t heads = hidden == 512 ? 8 : hidden == 320 ? 5 : 4, kv = hidden == 320 ? 1 : 2;
  const int64_t intermediate = hidden == 512 ? 640 : hidden == 320 ? 448 : 80;
  nlohmann::json c = {{"architectures", {classes.at(family)}},
                      {"hidden_size", hidden},
                      {"intermediate_size", intermediate},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", heads},
                      {"num_key_value_heads", kv},
                      {"head_dim", hidden / heads},
                      {"vocab_size", 101},
                      {"rms_norm_eps", 1e-5},
                      {"tie_word_embeddings", false},
                      {"max_position_embeddings", 4096}};
  if (family == "llama") c["attention_bias"] = c["mlp_bias"] = true;
  if (family.starts_with("granite"))
    c.update({{"embedding_multiplier", 7.0},
              {"attention_multiplier", 0.11},
              {"residual_multiplier", 0.37},
              {"logits_scaling", 3.0}});
  if (family == "granitemoehybrid")
    c.update({{"shared_intermediate_size", intermediate}, {"position_embedding_type", "rope"}});
  if (family.ends_with("_moe"))
    c.update({{"num_experts", 7},
              {"num_experts_per_tok", 3},
              {"moe_intermediate_size", hidden == 512   ? 384
                                        : hidden == 320 ? 192
                                                        : 20},
              {"shared_expert_intermediate_size", hidden == 320 ? 320 : intermediate},
              {"num_dense_layers", 1},
              {"routed_scaling_factor", 1.7},
              {"norm_topk_prob", true}});
  if (family == "gpt_oss")
    c.update({{"num_local_experts", 5},
              {"num_experts_per_tok", 2},
              {"intermediate_size", hidden == 512   ? 384
                                    : hidden == 320 ? 192
                                                    : 20},
              {"sliding_window", 6},
              {"swiglu_limit", 1.5}});
  if (family == "gemma3")
    c.update({{"num_hidden_layers", 6},
              {"sliding_window", 5},
              {"sliding_window_pattern", 3},
              {"query_pre_attn_scalar", 13},
              {"final_logit_softcapping", 3.0},
              {"tie_word_embeddings", true}});
  if (family == "gemma4") {  // heads of 512 in full layers of the widest, as published
    const bool widest = hidden == 512;
    c.update({{"num_hidden_layers", 4},
              {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
              {"num_attention_heads", widest ? 4 : heads},
              {"num_key_value_heads", widest ? 1 : kv},
              {"head_dim", widest ? 256 : hidden / heads},
              {"global_head_dim", widest ? 512 : 2 * hidden / heads},
              {"num_kv_shared_layers", 2},
              {"use_double_wide_mlp", true},
              {"sliding_window", 5},
              {"final_logit_softcapping", 3.0},
              {"hidden_size_per_layer_input", widest          ? 512
                                              : hidden == 320 ? 320
                                                              : 6},
              {"vocab_size_per_layer_input", 101},
              {"tie_word_embeddings", true}});
  }
  if (family.starts_with("lfm2"))
    c.update({{"layer_types", {"conv", "full_attention"}},
              {"block_auto_adjust_ff_dim", false},
              {"conv_bias", hidden == 320}});
  if (family.starts_with("qwen3_5")) {
    const bool odd = hidden == 48;
    c.update({{"layer_types", {"linear_attention", "full_attention"}},
              {"partial_rotary_factor", 0.5},
              {"linear_num_key_heads", odd ? 2 : hidden / 64},
              {"linear_num_value_heads", odd ? 6 : hidden / 32},
              {"linear_key_head_dim", odd ? 8 : 16},
              {"linear_value_head_dim", odd ? 12 : 32},
              {"linear_conv_kernel_dim", 4}});
  }
  return c;
}

}  // namespace onw::testing
