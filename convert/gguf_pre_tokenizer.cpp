// The published pre-tokenizers by the names that GGUF files give them. The expressions are data of the published
// tokenizer.json files (MODELS: 10.3).
#include <algorithm>
#include <array>

#include "convert/gguf_tokenizer.h"

namespace onw {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekDigits = R"(\p{N}{1,3})";
constexpr std::string_view kDeepSeekKanji = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kDeepSeekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Names = std::vector<std::string_view>;

struct Row {
  Names names;
  PreTokenizer made;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat",
        "modern-bert", "exaone4", "trillion", "granite-docling", "a.x-4.0", "mellum"},
       {.gpt2_split = true}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {.gpt2_split = true, .digits = true}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {.splits = {kLlama3}, .ignore_merges = true, .add_bos = true}},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {.splits = {kLlama3}}},
      {{"qwen2", "megrez"}, {.splits = {kQwen2}, .nfc = true}},
      {{"deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "grok-2"}, {.splits = {kQwen2}}},
      {{"qwen35"}, {.splits = {kQwen35}, .nfc = true}},
      {{"gpt-4o", "o200k", "llama4", "kanana2", "talkie", "minimax-m2"}, {.splits = {kO200k}}},
      {{"tekken"}, {.splits = {kTekken}, .ignore_merges = true, .add_bos = true}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {.splits = {kDeepSeekDigits, kDeepSeekKanji, kDeepSeekWords}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {.splits = {kBailing}}},
      {{"seed-coder"}, {.splits = {kSeedCoder}}},
      // A file that names none: what its readers have always done with it.
      {{"", "default"}, {.splits = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
  };
  return table;
}

}  // namespace

Result<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  for (const Row& row : rows()) {
    if (std::ranges::find(row.names, name) == row.names.end()) continue;
    PreTokenizer found = row.made;
    found.name = name;
    return found;
  }
  return error(
      Code::unsupported,
      "the pre-tokenizer '{}' (tokenizer.ggml.pre) is not known. Put the publisher's tokenizer.json beside the file",
      name);
}

}  // namespace onw
