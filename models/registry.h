// The families that onw knows. A family is one file: a config in, a Program out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/kv_format.h"
#include "graph/program.h"

namespace onw {

// How keys and values are kept where nobody asks for something else, and why: INT8 where it was measured to cost a KL
// of at most 0.005 against F16, beyond what rounding alone causes (docs/arithmetic.md), else F16.
struct KvDefault {
  KvFormat format = KvFormat::f16;
  std::string_view reason;
};

class Config;

struct Family {
  std::string_view name;                            // "llama"
  std::span<const std::string_view> architectures;  // of config.json: "LlamaForCausalLM"
  std::string_view gguf_architecture;               // general.architecture; empty: none

  // `config` is a Hugging Face config.json, any dialect; tie_word_embeddings must say whether the checkpoint has a head
  // of its own (the converter sees to that). Errors: bad_format and unsupported, naming the key. A value of a wrong
  // type is for build_program to refuse.
  Result<Program> (*build)(const Config& config);

  // `metadata` holds the file's keys without arrays longer than a few hundred. The reader adds "onw.vocab_size",
  // "onw.has_head", "onw.has_attention_bias", "onw.has_mlp_bias" and "onw.keys_are_values" (bool), and, where the
  // tensor is there, "onw.rope_freqs" (numbers). The result is a config.json as `build` takes it.
  Result<nlohmann::json> (*config_from_gguf)(const nlohmann::json& metadata);

  KvDefault kv;

  // The layer that predicts one token further (models/mtp.h); null where the family has none.
  Result<Program> (*build_mtp)(const Config& config, int64_t short_vocabulary) = nullptr;
};

std::span<const Family> all_families();

// By config["architectures"][0], else config["model_type"]. Errors: unsupported, listing the families and the nearest
// name.
Result<const Family*> find_family(const nlohmann::json& config);
Result<const Family*> find_gguf_family(std::string_view architecture);

// Of a Program's family.
KvDefault kv_default(const Program& program);

// find_family(config)->build(config), its residual stream divided as the config of a model folder says
// (models/residual.h). Errors: also bad_format for a key whose value has another type than the family reads.
Result<Program> build_program(const nlohmann::json& config);

// The Program of the layer that predicts one token further, where the config declares one ("mtp_num_hidden_layers"; of
// several the first): whether a folder holds its weights is another question. None: the family has none, or the config
// declares none. `short_vocabulary` as in models/mtp.h, -1: as fits the vocabulary. Errors: bad_format, unsupported (an
// embedding of its own, or a residual stream that was divided).
Result<std::optional<Program>> build_mtp_program(const nlohmann::json& config, int64_t short_vocabulary = -1);

}  // namespace onw
