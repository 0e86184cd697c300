// Text in and out: tokenizer.json, streaming decoding, chat templates. Handles move, do not copy, and their const
// functions may run in several threads at once. Offsets and sizes are in bytes of UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_depth.h"
#include "base/result.h"

struct OnwTokenizer;
struct OnwStream;
struct OnwTemplate;

namespace onw {

constexpr int64_t kMaxTextBytes = 4 << 20;  // of one string, before encoding

struct EncodeOptions {
  bool special = false;       // added tokens in the text match, as in the Python library; otherwise all text is plain
  bool bos = false;           // begins with BOS, exactly once
  bool template_ids = false;  // what the tokenizer's own post-processor adds ([CLS] ... [SEP], or BOS)
};

struct Encoding {
  std::vector<int32_t> ids;
  // Begin and end of each token in the text. Tokens that are parts of one character all have that character's range.
  std::vector<std::pair<int64_t, int64_t>> offsets;
};

struct AddedToken {
  int32_t id = 0;
  bool special = false;  // left out by decode(ids, true)
  std::string content;
};

class ChatTemplate;

class Tokenizer {
 public:
  // `config` is the text of tokenizer_config.json, or empty. Truncation and padding of the file are not applied.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view config = {});
  static Result<Tokenizer> open(const std::string& folder);

  // Errors: text that is not UTF-8 or longer than kMaxTextBytes.
  Result<Encoding> encode(std::string_view text, EncodeOptions options = {}) const;
  // Ids without a token (the padding rows of an output matrix) give no text.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::string piece(int32_t id) const;                // as the vocabulary spells it; empty if there is none
  Result<std::string> token_bytes(int32_t id) const;  // what it adds to a text; may be part of a character
  std::optional<int32_t> id_of(std::string_view piece) const;
  int32_t vocabulary_size() const;                      // largest id + 1; the model's matrix may have more rows
  const std::vector<AddedToken>& added_tokens() const;  // in ascending ids

  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  // Whether a plain text is to begin with BOS: add_bos_token of the config, else what the post-processor does.
  bool adds_bos() const;
  // {"bos_token": "<s>", ...}: every *_token of the config, variables of the chat template.
  const std::map<std::string, std::string>& special_tokens() const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Text of ids as they come, for one sequence; it may outlive its tokenizer: never half a character, and all parts
// together equal decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  Result<std::string> push(int32_t id);
  Result<std::string> finish();  // what was held; an unfinished character becomes U+FFFD

 private:
  struct Free {
    void operator()(OnwStream* stream) const;
  };
  std::unique_ptr<OnwStream, Free> stream_;
};

}  // namespace onw
