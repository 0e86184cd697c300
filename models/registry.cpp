#include "models/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "graph/json.h"
#include "models/families.h"
#include "models/mtp.h"
#include "models/residual.h"
#include "models/rotated.h"

namespace onw {
namespace {

constexpr std::string_view kLlama[] = {"LlamaForCausalLM", "llama"};
constexpr std::string_view kQwen2[] = {"Qwen2ForCausalLM", "qwen2"};
constexpr std::string_view kQwen3[] = {"Qwen3ForCausalLM", "qwen3"};
constexpr std::string_view kQwen3Moe[] = {"Qwen3MoeForCausalLM", "qwen3_moe"};
constexpr std::string_view kGptOss[] = {"GptOssForCausalLM", "gpt_oss"};
constexpr std::string_view kGranite[] = {"GraniteForCausalLM", "granite"};
constexpr std::string_view kGraniteHybrid[] = {"GraniteMoeHybridForCausalLM", "granitemoehybrid"};
constexpr std::string_view kGemma3[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "gemma3_text", "gemma3"};
constexpr std::string_view kGemma4[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "gemma4_text", "gemma4"};
constexpr std::string_view kLfm2[] = {"Lfm2ForCausalLM", "lfm2"};
constexpr std::string_view kLfm2Moe[] = {"Lfm2MoeForCausalLM", "lfm2_moe"};
constexpr std::string_view kQwen3_5[] = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "qwen3_5_text",
                                         "qwen3_5"};
constexpr std::string_view kQwen3_5Moe[] = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
                                            "qwen3_5_moe_text", "qwen3_5_moe"};

// Measured with `onw eval`: docs/arithmetic.md has the table.
constexpr KvDefault kMeasuredLlama = {
    KvFormat::int8, "KL 0.006 against F16 with SmolLM2-135M, of which 0.004 is rounding that any change causes"};
constexpr KvDefault kMeasuredGemma3 = {KvFormat::f16, "INT8 raises the perplexity of Gemma 3 270M by 1.6 %"};
constexpr KvDefault kNotMeasured = {KvFormat::f16, "INT8 was not measured for this family"};
constexpr KvDefault kKeyBiases = {KvFormat::f16, "biases of the keys leave one INT8 scale per head too coarse"};

const Family kFamilies[] = {
    {"llama", kLlama, "llama", build_llama, llama_config_from_gguf, kMeasuredLlama},
    {"qwen2", kQwen2, "qwen2", build_qwen2, qwen2_config_from_gguf, kKeyBiases},
    {"qwen3", kQwen3, "qwen3", build_qwen3, qwen3_config_from_gguf, kNotMeasured},
    {"qwen3_moe", kQwen3Moe, "qwen3moe", build_qwen3_moe, qwen3_moe_config_from_gguf, kNotMeasured},
    {"gpt_oss", kGptOss, "gpt-oss", build_gpt_oss, gpt_oss_config_from_gguf, kNotMeasured},
    {"granite", kGranite, "granite", build_granite, granite_config_from_gguf, kNotMeasured},
    {"granitemoehybrid", kGraniteHybrid, "", build_granite_hybrid, nullptr, kNotMeasured},
    {"gemma3", kGemma3, "gemma3", build_gemma3, gemma3_config_from_gguf, kMeasuredGemma3},
    {"gemma4", kGemma4, "gemma4", build_gemma4, gemma4_config_from_gguf, kNotMeasured},
    {"lfm2", kLfm2, "lfm2", build_lfm2, lfm2_config_from_gguf, kNotMeasured},
    {"lfm2_moe", kLfm2Moe, "lfm2moe", build_lfm2_moe, lfm2_moe_config_from_gguf, kNotMeasured},
    {"qwen3_5", kQwen3_5, "qwen35", build_qwen3_5, qwen3_5_config_from_gguf, kNotMeasured, build_qwen3_5_mtp},
    {"qwen3_5_moe", kQwen3_5Moe, "qwen35moe", build_qwen3_5_moe, qwen3_5_moe_config_from_gguf, kNotMeasured,
     build_qwen3_5_moe_mtp},
};

// Levenshtein's distance, for "did you mean".
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

Failure unknown(std::string_view name) {
  std::string known;
  std::string_view nearest;
  for (const Family& f : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", f.name);
    for (const std::string_view a : f.architectures)
      if (nearest.empty() || distance(name, a) < distance(name, nearest)) nearest = a;
  }
  return error(Code::unsupported, "architecture '{}' is not supported. onw runs: {}. The nearest name is {}.",
               name.substr(0, 100), known, nearest);
}

}  // namespace

std::span<const Family> all_families() { return kFamilies; }

Result<const Family*> find_family(const Json& config) {
  const Config outer(config), full = outer.with(config);  // the text part has an architecture of its own, or none
  std::vector<std::string> names = full.strings("architectures");
  if (const std::string type = outer.text("model_type", ""); !type.empty()) names.push_back(type);
  RETURN_IF_ERROR(outer.fault());
  if (names.empty()) return error(Code::bad_format, "config.json names neither 'architectures' nor 'model_type'");
  for (const std::string& name : names)
    for (const Family& f : kFamilies)
      if (std::ranges::find(f.architectures, name) != f.architectures.end()) return &f;
  return unknown(names.front());
}

Result<const Family*> find_gguf_family(std::string_view architecture) {
  for (const Family& f : kFamilies)
    if (!f.gguf_architecture.empty() && f.gguf_architecture == architecture) return &f;
  return unknown(architecture);
}

KvDefault kv_default(const Program& program) {
  const auto found = std::ranges::find(kFamilies, program.family, &Family::name);
  return found == std::end(kFamilies) ? kNotMeasured : found->kv;
}

Result<Program> build_program(const Json& config) {
  const auto family = find_family(config);
  RETURN_IF_ERROR(family);
  const Config read(config);
  auto program = (*family)->build(read);
  const int64_t shift = read.with(config).integer(kResidualShiftKey, 0);
  RETURN_IF_ERROR(read.fault());  // before what followed from it
  RETURN_IF_ERROR(program);
  if (shift < 0 || shift > kMaxResidualShift)
    return error(Code::bad_format, "config.json: {} is {}; 0 to {} are possible. Convert the model again",
                 kResidualShiftKey, shift, kMaxResidualShift);
  if (shift > 0) RETURN_IF_ERROR(shift_residual(*program, static_cast<int>(shift)));
  RETURN_IF_ERROR(rotate_inputs(*program, config));
  return program;
}

Result<std::optional<Program>> build_mtp_program(const Json& config, int64_t short_vocabulary) {
  const auto family = find_family(config);
  RETURN_IF_ERROR(family);
  const Config outer(config), read = outer.with(config);
  const int64_t layers = outer.integer("mtp_num_hidden_layers", 0);
  if ((*family)->build_mtp == nullptr || layers == 0) return std::nullopt;
  if (layers < 0)
    return error(Code::bad_format, "config.json: 'mtp_num_hidden_layers' is {}, expected 0 or more", layers);
  if (outer.boolean("mtp_use_dedicated_embeddings", false))
    return error(Code::unsupported,
                 "config.json: 'mtp_use_dedicated_embeddings' is true: the layer that predicts a further token is run "
                 "with the model's own embedding alone");
  if (read.integer(kResidualShiftKey, 0) != 0)
    return error(Code::unsupported,
                 "the layer that predicts a further token does not go with a divided residual stream: convert the "
                 "model without --residual-shift");
  if (short_vocabulary < 0) {
    const auto vocabulary = outer.dimension("vocab_size");
    RETURN_IF_ERROR(vocabulary);
    short_vocabulary = *vocabulary >= 2 * kShortVocabulary ? kShortVocabulary : 0;
  }
  auto program = (*family)->build_mtp(outer, short_vocabulary);
  RETURN_IF_ERROR(outer.fault());
  RETURN_IF_ERROR(program);
  return std::move(*program);
}

}  // namespace onw
