// Text in and out: tokenizer.json, streaming decoding, chat templates. Handles move, do not copy, and their const
// functions may run in several threads at once. Offsets and sizes are in bytes of UTF-8.
#pragma once

#include <cstdint>
#include <limits>
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

// White space that a vocabulary has as added tokens (Gemma's runs of newlines) is plain text, and always matches.
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

// A rendered request, and its tokens. No string of the request is a control token in them.
struct ChatPrompt {
  std::string text;
  Encoding encoding;
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

  // The prompt of a request (see ChatTemplate::render), whose strings are data: neither they nor anything that the
  // template puts together from them matches added tokens. As in transformers the template alone decides on BOS; what
  // the post-processor would add is not added again. A text that `most_tokens` cannot hold, whatever it says, is an
  // error (context_overflow) before it is cut into tokens, which takes hundreds of bytes for each of its own.
  Result<ChatPrompt> encode_chat(const ChatTemplate& chat_template, std::string_view request_json,
                                 int64_t most_tokens = std::numeric_limits<int32_t>::max()) const;

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
  Result<void> fits(std::string_view text, int64_t most_tokens) const;
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

// A Jinja chat template, rendered byte for byte as transformers renders it.
class ChatTemplate {
 public:
  static Result<ChatTemplate> from_source(std::string_view jinja);
  // chat_template.jinja, else chat_template of tokenizer_config.json or chat_template.json. Error not_found: has none.
  static Result<ChatTemplate> open(const std::string& folder);

  // `request_json`: an object with messages, and where wanted tools, documents, add_generation_prompt (true if absent),
  // special_tokens ({"bos_token": ...}), now (ISO 8601, for strftime_now); every other key is a variable of the
  // template. Order and numbers reach the template as written. Limits: kMaxJsonDepth, kMaxTextBytes per string. Error
  // invalid_argument: the template's own raise_exception, in its words.
  // `special_tokens`, a JSON object, stands for the request's own where it is not empty.
  Result<std::string> render(std::string_view request_json, std::string_view special_tokens = {}) const;

  const std::string& source() const { return source_; }

 private:
  friend class Tokenizer;
  struct Free {
    void operator()(OnwTemplate* t) const;
  };
  using Native = std::unique_ptr<OnwTemplate, Free>;
  static Result<Native> compile(std::string_view jinja);
  const OnwTemplate* choose(std::string_view request_json) const;

  std::string source_;
  Native native_, tool_use_;  // tool_use_: a template of its own for requests with tools, as some models have
};

}  // namespace onw
