#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "text/folder_text.h"
#include "text/json_limits.h"
#include "text/native_call.h"
#include "text/render_request.h"
#include "text/text.h"

namespace onw {

using nlohmann::json;

struct Tokenizer::State {
  struct Free {
    void operator()(OnwTokenizer* t) const { onw_tokenizer_free(t); }
  };
  std::unique_ptr<OnwTokenizer, Free> native;
  std::vector<AddedToken> added;
  std::map<std::string, std::string> special_tokens;
  std::vector<int32_t> before, after;  // what the post-processor puts around a text
  std::optional<int32_t> bos, eos;
  int32_t vocabulary_size = 0;
  bool adds_bos = false;
};

namespace {

std::vector<int32_t> to_ids(const OnwEncoded& encoded) { return {encoded.ids, encoded.ids + encoded.size}; }

Result<std::vector<AddedToken>> read_added_tokens(const OnwTokenizer* native) {
  OnwBytes bytes;
  RETURN_IF_ERROR(native::checked(onw_added_tokens(native, &bytes), bytes, "tokenizer.json"));
  const std::string lines = native::take(bytes);
  std::vector<AddedToken> tokens;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\0', begin);
    AddedToken token;
    const char* after_id = std::from_chars(lines.data() + begin, lines.data() + end, token.id).ptr;
    token.special = after_id[1] == '1';
    token.content.assign(after_id + 3, lines.data() + end);
    tokens.push_back(std::move(token));
    begin = end + 1;
  }
  return tokens;
}

// A token is named as a string or as {"content": ...}.
std::optional<std::string> token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

std::map<std::string, std::string> read_special_tokens(const json& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items())
    if (key.ends_with("_token"))
      if (auto text = token_text(value)) tokens[key] = std::move(*text);
  return tokens;
}

Result<json> read_config(std::string_view text) {
  if (text.empty()) return json::object();
  RETURN_IF_ERROR(check_json_depth(text, "tokenizer_config.json", kMaxJsonDepth));
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    return error(Code::bad_format, "tokenizer_config.json: not a JSON object. Incomplete download?");
  return config;
}

// The tokens of an encoding; its memory goes back.
Encoding take(OnwEncoded encoded) {
  Encoding result;
  result.ids = to_ids(encoded);
  for (size_t i = 0; i < encoded.size; ++i)
    result.offsets.emplace_back(encoded.offsets[2 * i], encoded.offsets[2 * i + 1]);
  onw_encoded_free(encoded);
  return result;
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_text) {
  auto config = read_config(config_text);
  if (!config) return failure(std::move(config));
  auto state = std::make_shared<State>();
  OnwBytes bytes;
  OnwTokenizer* native = nullptr;
  RETURN_IF_ERROR(native::checked(onw_tokenizer_new(tokenizer_json.data(), tokenizer_json.size(), &native, &bytes),
                                  bytes, "tokenizer.json"));
  state->native.reset(native);
  if (onw_vocabulary_size(native) > std::numeric_limits<int32_t>::max())
    return error(Code::bad_format, "tokenizer.json: an id is larger than {}", std::numeric_limits<int32_t>::max());
  state->vocabulary_size = static_cast<int32_t>(onw_vocabulary_size(native));

  auto added = read_added_tokens(native);
  if (!added) return failure(std::move(added));
  state->added = std::move(*added);
  OnwEncoded affixes;
  RETURN_IF_ERROR(native::checked(onw_affixes(native, &affixes, &bytes), bytes, "tokenizer.json"));
  const auto around = to_ids(affixes);
  const size_t split = affixes.size == 0 ? 0 : affixes.offsets[0];
  onw_encoded_free(affixes);
  state->before.assign(around.begin(), around.begin() + split);
  state->after.assign(around.begin() + split, around.end());

  Tokenizer tokenizer(state);
  state->special_tokens = read_special_tokens(*config);
  const auto named = [&](const char* key) -> std::optional<int32_t> {
    const auto found = state->special_tokens.find(key);
    return found == state->special_tokens.end() ? std::nullopt : tokenizer.id_of(found->second);
  };
  state->bos = named("bos_token");
  state->eos = named("eos_token");
  if (!state->bos && !state->before.empty()) state->bos = state->before.front();
  const auto add_bos = config->find("add_bos_token");
  const bool declared = add_bos != config->end() && add_bos->is_boolean();
  state->adds_bos =
      state->bos && (declared ? add_bos->get<bool>() : !state->before.empty() && state->before.front() == *state->bos);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::open(const std::string& folder) {
  const std::filesystem::path path(folder);
  const auto tokenizer_json = read_text_file(path / "tokenizer.json");
  RETURN_IF_ERROR(tokenizer_json);
  auto config = read_text_file(path / "tokenizer_config.json");
  if (!config && config.error().code != Code::not_found) return failure(std::move(config));
  auto tokenizer = from_json(*tokenizer_json, config ? *config : std::string());
  if (!tokenizer) return failure(std::move(tokenizer), folder);
  return tokenizer;
}

Result<Encoding> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (static_cast<int64_t>(text.size()) > kMaxTextBytes)
    return error(Code::invalid_argument, "the text has {} bytes, more than {} in one string. Split it", text.size(),
                 kMaxTextBytes);
  OnwEncoded encoded;
  OnwBytes bytes;
  const int32_t controls = options.special ? 1 : 0;
  RETURN_IF_ERROR(native::checked(
      onw_encode(state_->native.get(), text.data(), text.size(), controls, nullptr, 0, &encoded, &bytes), bytes,
      "encode"));
  Encoding result = take(encoded);

  const auto end = static_cast<int64_t>(text.size());
  const auto insert_front = [&](std::span<const int32_t> ids) {
    result.ids.insert(result.ids.begin(), ids.begin(), ids.end());
    result.offsets.insert(result.offsets.begin(), ids.size(), {0, 0});
  };
  if (options.template_ids) {
    insert_front(state_->before);
    result.ids.insert(result.ids.end(), state_->after.begin(), state_->after.end());
    result.offsets.insert(result.offsets.end(), state_->after.size(), {end, end});
  }
  const bool begun = !result.ids.empty() && result.ids.front() == state_->bos;
  if (options.bos && state_->bos && !begun) insert_front(std::array{*state_->bos});
  return result;
}

Result<void> Tokenizer::fits(std::string_view text, int64_t most_tokens) const {
  constexpr int64_t kUsualBytes = 8, kShrinking = 4;  // a normaliser may make fewer bytes of a text, as NFC does
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes / kUsualBytes <= most_tokens) return {};
  int64_t longest = 1;
  for (int32_t id = 0; id < state_->vocabulary_size; ++id)
    longest = std::max(longest, static_cast<int64_t>(piece(id).size()));
  if (bytes / (longest * kShrinking) <= most_tokens) return {};
  return error(Code::context_overflow,
               "the prompt has {} bytes, more than a context of {} tokens can hold. Shorten it, or begin anew", bytes,
               most_tokens);
}

Result<ChatPrompt> Tokenizer::encode_chat(const ChatTemplate& chat_template, std::string_view request_json,
                                          int64_t most_tokens) const {
  const std::string special_tokens = json(state_->special_tokens).dump(-1, ' ', false, json::error_handler_t::replace);
  const OnwTokenizer* native = state_->native.get();
  auto rendered = native::render(chat_template.choose(request_json), native, request_json, special_tokens);
  if (!rendered) return failure(std::move(rendered));
  RETURN_IF_ERROR(fits(rendered->text, most_tokens));
  OnwEncoded encoded;
  OnwBytes bytes;
  const auto& ranges = rendered->protected_ranges;
  RETURN_IF_ERROR(native::checked(onw_encode(native, rendered->text.data(), rendered->text.size(), 2, ranges.data(),
                                             ranges.size() / 2, &encoded, &bytes),
                                  bytes, "encode"));
  return ChatPrompt{std::move(rendered->text), take(encoded)};
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  OnwBytes bytes;
  const std::vector<uint32_t> unsigned_ids(ids.begin(), ids.end());
  RETURN_IF_ERROR(
      native::checked(onw_decode(state_->native.get(), unsigned_ids.data(), unsigned_ids.size(), skip_special, &bytes),
                      bytes, "decode"));
  return native::take(bytes);
}

std::string Tokenizer::piece(int32_t id) const {
  OnwBytes bytes;
  const bool found = onw_piece(state_->native.get(), static_cast<uint32_t>(id), &bytes) == ONW_OK;
  std::string text = native::take(bytes);
  return found ? text : std::string();
}

Result<std::string> Tokenizer::token_bytes(int32_t id) const {
  OnwBytes bytes;
  RETURN_IF_ERROR(
      native::checked(onw_token_bytes(state_->native.get(), static_cast<uint32_t>(id), &bytes), bytes, "token_bytes"));
  return native::take(bytes);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view piece) const {
  const int64_t id = onw_id(state_->native.get(), piece.data(), piece.size());
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

int32_t Tokenizer::vocabulary_size() const { return state_->vocabulary_size; }
const std::vector<AddedToken>& Tokenizer::added_tokens() const { return state_->added; }
std::optional<int32_t> Tokenizer::bos() const { return state_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
const std::map<std::string, std::string>& Tokenizer::special_tokens() const { return state_->special_tokens; }

void StreamDecoder::Free::operator()(OnwStream* stream) const { onw_stream_free(stream); }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : stream_(onw_stream_new(tokenizer.state_->native.get(), skip_special)) {}

Result<std::string> StreamDecoder::push(int32_t id) {
  OnwBytes bytes;
  RETURN_IF_ERROR(native::checked(onw_stream_push(stream_.get(), static_cast<uint32_t>(id), &bytes), bytes, "decode"));
  return native::take(bytes);
}

Result<std::string> StreamDecoder::finish() {
  OnwBytes bytes;
  RETURN_IF_ERROR(native::checked(onw_stream_finish(stream_.get(), &bytes), bytes, "decode"));
  return native::take(bytes);
}

}  // namespace onw
