// A tokenizer.json for a GGUF file, which describes its tokenizer by metadata instead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

class GgufFile;

// The keys tokenizer.ggml.* of a file, and its chat template. Views into the file.
struct GgufTokenizer {
  std::string_view model;  // "gpt2": byte-level BPE; "gemma4": BPE on text; "llama": SentencePiece BPE; "t5": Unigram
  std::string_view pre;    // which published pre-tokenizer a byte-level BPE has
  std::vector<std::string_view> tokens;
  std::vector<float> scores;              // of "llama" and "t5": one per token
  std::vector<int32_t> types;             // GgufTokenType, one per token; none: all normal
  std::vector<std::string_view> merges;   // "left right", of the BPE models
  std::string_view precompiled_charsmap;  // of "t5": SentencePiece's normalisation table
  std::string_view chat_template;
  std::optional<int64_t> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

enum GgufTokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;  // special tokens, add_bos_token, chat_template
};

// Nothing where the file has no tokenizer.
std::optional<GgufTokenizer> read_gguf_tokenizer(const GgufFile& file);

// The tokenizer that the publisher's own file would give. Errors: unsupported (a model or pre-tokenizer that is not
// known, named), bad_format (lists that do not fit together, a token that is not UTF-8).
Result<TokenizerFiles> tokenizer_from_gguf(const GgufTokenizer& tokenizer);

// How a byte-level BPE cuts a text before it merges.
struct PreTokenizer {
  std::string_view name;
  std::vector<std::string_view> splits;  // regular expressions (Oniguruma), one after another, each match by itself
  bool gpt2_split = false;               // and GPT-2's own expression at last
  bool digits = false;                   // each digit by itself, before everything else
  bool ignore_merges = false;            // a whole word that is a token needs no merges
  bool nfc = false;
  bool add_bos = false;  // where the file does not say
};

// The pre-tokenizer that a GGUF file names. Error: unsupported, with the name.
Result<PreTokenizer> find_pre_tokenizer(std::string_view name);

}  // namespace onw
