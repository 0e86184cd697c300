#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "convert/gguf.h"

namespace onw {
namespace {

using nlohmann::json;
using ordered = nlohmann::ordered_json;

constexpr std::string_view kSpace = "\u2581";  // SentencePiece's space

// A token's text as tokenizer.json has it: files of SentencePiece models spell runs of spaces in user-defined tokens as
// spaces, the vocabulary has them as U+2581.
std::string spelled(const GgufTokenizer& t, size_t id) {
  const std::string_view text = t.tokens[id];
  const bool sentencepiece = t.model != "gpt2";
  if (!sentencepiece || text.find(' ') == text.npos) return std::string(text);
  std::string out;
  for (const char c : text) c == ' ' ? out.append(kSpace) : out.append(1, c);
  return out;
}

int32_t type_of(const GgufTokenizer& t, size_t id) { return t.types.empty() ? kNormal : t.types[id]; }

bool is_byte_token(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'); }

Result<void> check(const GgufTokenizer& t) {
  const size_t n = t.tokens.size();
  if (n == 0) return error(Code::bad_format, "tokenizer.ggml.tokens is empty. Incomplete file?");
  if (!t.types.empty() && t.types.size() != n)
    return error(Code::bad_format, "tokenizer.ggml.token_type has {} entries for {} tokens", t.types.size(), n);
  if ((t.model == "llama" || t.model == "t5") && t.scores.size() != n)
    return error(Code::bad_format, "tokenizer.ggml.scores has {} entries for {} tokens", t.scores.size(), n);
  if (!std::ranges::all_of(t.scores, [](float score) { return std::isfinite(score); }))
    return error(Code::bad_format, "tokenizer.ggml.scores holds a value that is no number");
  for (const auto& id : {t.bos, t.eos, t.unk, t.pad})
    if (id && *id >= static_cast<int64_t>(n))
      return error(Code::bad_format, "a special token has id {}, beyond the {} tokens", *id, n);
  return {};
}

std::optional<std::string> token_at(const GgufTokenizer& t, const std::optional<int64_t>& id) {
  if (!id || *id < 0) return std::nullopt;
  return spelled(t, static_cast<size_t>(*id));
}

ordered added_tokens_of(const GgufTokenizer& t) {
  ordered added = ordered::array();
  for (size_t id = 0; id < t.tokens.size(); ++id) {
    const int32_t type = type_of(t, id);
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    added.push_back({{"id", id},
                     {"content", spelled(t, id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != kUserDefined}});
  }
  return added;
}

// token -> id, the first of equal ones.
ordered vocabulary_of(const GgufTokenizer& t) {
  ordered vocabulary = ordered::object();
  auto& entries = *vocabulary.get_ptr<ordered::object_t*>();
  std::unordered_set<std::string> seen;
  for (size_t id = 0; id < t.tokens.size(); ++id)
    if (auto text = spelled(t, id); seen.insert(text).second) entries.emplace_back(std::move(text), ordered(id));
  return vocabulary;
}

// "left right" as pairs; those that do not lead from tokens to a token are of no use, and left out.
ordered merges_of_list(const GgufTokenizer& t) {
  const std::unordered_set<std::string_view> known(t.tokens.begin(), t.tokens.end());
  ordered merges = ordered::array();
  for (const std::string_view merge : t.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos) continue;
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    std::string whole(left);
    whole += right;
    if (known.contains(left) && known.contains(right) && known.contains(whole))
      merges.push_back(ordered::array({left, right}));
  }
  return merges;
}

struct Merge {
  float score;
  int left, right;               // ids
  size_t left_size, right_size;  // characters
  size_t order;
};

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// SentencePiece merges the pair whose whole has the best score: every cut of every piece into two pieces, best first.
// User-defined pieces go before all others, longest first.
ordered merges_of_scores(const GgufTokenizer& t) {
  const size_t n = t.tokens.size();
  std::vector<std::string> pieces(n);
  std::unordered_map<std::string_view, int> ids;
  for (size_t id = 0; id < n; ++id) {
    pieces[id] = spelled(t, id);
    ids.emplace(pieces[id], static_cast<int>(id));
  }
  std::vector<Merge> merges;
  for (size_t id = 0; id < n; ++id) {
    const std::string_view piece = pieces[id];
    const size_t first = merges.size();
    const float score = type_of(t, id) == kUserDefined ? 0.0f : t.scores[id];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xC0) == 0x80) continue;
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({score, left->second, right->second, characters(left->first), characters(right->first), 0});
    }
    std::sort(merges.begin() + first, merges.end(),
              [](const Merge& a, const Merge& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
  }
  for (size_t i = 0; i < merges.size(); ++i) merges[i].order = i;
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_size, a.right_size, b.order) >
           std::tie(b.score, b.left_size, b.right_size, a.order);
  });
  ordered list = ordered::array();
  for (const Merge& m : merges) list.push_back(ordered::array({pieces[m.left], pieces[m.right]}));
  return list;
}

ordered split_at(std::string_view expression) {
  return {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}

ordered byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

ordered sequence(const char* member, ordered parts) { return {{"type", "Sequence"}, {member, std::move(parts)}}; }

ordered replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Result<ordered> byte_level_bpe(const GgufTokenizer& t, const PreTokenizer& pre) {
  ordered cuts = ordered::array();
  if (pre.digits) cuts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view expression : pre.splits) cuts.push_back(split_at(expression));
  cuts.push_back(byte_level(pre.gpt2_split));
  ordered file;
  file["normalizer"] = pre.nfc ? ordered{{"type", "NFC"}} : ordered();
  file["pre_tokenizer"] = sequence("pretokenizers", std::move(cuts));
  file["decoder"] = byte_level(true);
  file["model"] = {{"type", "BPE"},     {"dropout", nullptr},     {"unk_token", nullptr},
                   {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", pre.ignore_merges}};
  file["model"]["vocab"] = vocabulary_of(t);
  file["model"]["merges"] = merges_of_list(t);
  return file;
}

// BPE on the text itself, spaces as U+2581, unknown characters as bytes: Llama 2, Gemma.
ordered text_bpe(const GgufTokenizer& t) {
  const bool prefix = t.add_space_prefix.value_or(t.model == "llama");
  ordered normalizers = ordered::array(), decoders = ordered::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace(" ", kSpace));
  decoders.push_back(replace(kSpace, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const auto unk = token_at(t, t.unk);
  ordered file;
  file["normalizer"] = sequence("normalizers", std::move(normalizers));
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = sequence("decoders", std::move(decoders));
  file["model"] = {{"type", "BPE"},    {"dropout", nullptr},    {"unk_token", unk ? ordered(*unk) : ordered()},
                   {"fuse_unk", true}, {"byte_fallback", true}, {"ignore_merges", false}};
  file["model"]["vocab"] = vocabulary_of(t);
  file["model"]["merges"] = t.model == "llama" ? merges_of_scores(t) : merges_of_list(t);
  return file;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t size = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < size ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= size ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

Result<ordered> unigram(const GgufTokenizer& t) {
  ordered vocabulary = ordered::array(), normalizers = ordered::array(), decoders = ordered::array();
  bool has_bytes = false;
  for (size_t id = 0; id < t.tokens.size(); ++id) {
    has_bytes = has_bytes || is_byte_token(t.tokens[id]);
    vocabulary.push_back(ordered::array({spelled(t, id), t.scores[id]}));
  }
  if (!t.precompiled_charsmap.empty())
    normalizers.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(t.precompiled_charsmap)}});
  if (t.remove_extra_whitespaces.value_or(false)) {
    normalizers.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
    normalizers.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  const char* prepend = t.add_space_prefix.value_or(true) ? "always" : "never";
  const ordered metaspace = {
      {"type", "Metaspace"}, {"replacement", kSpace}, {"prepend_scheme", prepend}, {"split", true}};
  if (has_bytes) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back(metaspace);
  ordered file;
  file["normalizer"] = normalizers.empty() ? ordered() : sequence("normalizers", std::move(normalizers));
  file["pre_tokenizer"] = metaspace;
  file["decoder"] = sequence("decoders", std::move(decoders));
  file["model"] = {{"type", "Unigram"}, {"unk_id", t.unk.value_or(0)}, {"byte_fallback", has_bytes}};
  file["model"]["vocab"] = std::move(vocabulary);
  return file;
}

// BOS before a text and EOS after it, as the file says.
ordered post_processor(const GgufTokenizer& t, bool add_bos, bool add_eos) {
  const auto bos = add_bos ? token_at(t, t.bos) : std::nullopt;
  const auto eos = add_eos ? token_at(t, t.eos) : std::nullopt;
  if (!bos && !eos) return nullptr;
  ordered single = ordered::array(), tokens = ordered::object();
  const auto add = [&](const std::string& text, int64_t id) {
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    tokens[text] = {{"id", text}, {"ids", ordered::array({id})}, {"tokens", ordered::array({text})}};
  };
  if (bos) add(*bos, *t.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (eos) add(*eos, *t.eos);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", ordered::array()}, {"special_tokens", tokens}};
}

ordered config_of(const GgufTokenizer& t, bool add_bos, bool add_eos) {
  ordered config;
  config["add_bos_token"] = add_bos;
  config["add_eos_token"] = add_eos;
  config["clean_up_tokenization_spaces"] = false;
  const std::pair<const char*, const std::optional<int64_t>*> named[] = {
      {"bos_token", &t.bos}, {"eos_token", &t.eos}, {"unk_token", &t.unk}, {"pad_token", &t.pad}};
  for (const auto& [name, id] : named)
    if (auto text = token_at(t, *id)) config[name] = *text;
  if (!t.chat_template.empty()) config["chat_template"] = t.chat_template;
  return config;
}

Result<std::string> printed(const ordered& file, const char* name) {
  try {
    return file.dump();
  } catch (const json::exception& mistake) {
    return error(Code::bad_format, "{}: a token or template is not UTF-8 ({})", name, mistake.what());
  }
}

std::vector<std::string_view> strings_of(const GgufFile& file, std::string_view key) {
  const GgufArray* array = file.array(key);
  return array != nullptr && array->is_strings() ? array->strings : std::vector<std::string_view>();
}

template <class T, class Read>
std::vector<T> numbers_of(const GgufFile& file, std::string_view key, Read read) {
  const GgufArray* array = file.array(key);
  std::vector<T> values;
  for (int64_t i = 0; array != nullptr && !array->is_strings() && i < array->count; ++i)
    values.push_back(static_cast<T>(read(*array, i)));
  return values;
}

}  // namespace

std::optional<GgufTokenizer> read_gguf_tokenizer(const GgufFile& file) {
  const auto model = file.string("tokenizer.ggml.model");
  if (!model || *model == "no_vocab") return std::nullopt;
  GgufTokenizer t;
  t.model = *model;
  t.pre = file.string("tokenizer.ggml.pre").value_or("");
  t.tokens = strings_of(file, "tokenizer.ggml.tokens");
  t.merges = strings_of(file, "tokenizer.ggml.merges");
  t.scores = numbers_of<float>(file, "tokenizer.ggml.scores", [](const auto& a, int64_t i) { return a.number(i); });
  t.types =
      numbers_of<int32_t>(file, "tokenizer.ggml.token_type", [](const auto& a, int64_t i) { return a.integer(i); });
  if (const GgufArray* map = file.array("tokenizer.ggml.precompiled_charsmap"); map != nullptr && !map->is_strings())
    t.precompiled_charsmap = {reinterpret_cast<const char*>(map->numbers.data()), map->numbers.size()};
  t.chat_template = file.string("tokenizer.chat_template").value_or("");
  t.bos = file.integer("tokenizer.ggml.bos_token_id");
  t.eos = file.integer("tokenizer.ggml.eos_token_id");
  t.unk = file.integer("tokenizer.ggml.unknown_token_id");
  t.pad = file.integer("tokenizer.ggml.padding_token_id");
  t.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
  t.add_eos = file.boolean("tokenizer.ggml.add_eos_token");
  t.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
  t.remove_extra_whitespaces = file.boolean("tokenizer.ggml.remove_extra_whitespaces");
  return t;
}

Result<TokenizerFiles> tokenizer_from_gguf(const GgufTokenizer& t) {
  RETURN_IF_ERROR(check(t));
  bool adds_bos = t.model == "llama", adds_eos = t.model == "t5";
  ordered file;
  if (t.model == "gpt2") {
    const auto pre = find_pre_tokenizer(t.pre);
    RETURN_IF_ERROR(pre);
    adds_bos = pre->add_bos;
    auto made = byte_level_bpe(t, *pre);
    RETURN_IF_ERROR(made);
    file = std::move(*made);
  } else if (t.model == "llama" || t.model == "gemma4") {
    file = text_bpe(t);
  } else if (t.model == "t5") {
    auto made = unigram(t);
    RETURN_IF_ERROR(made);
    file = std::move(*made);
  } else {
    return error(Code::unsupported,
                 "a tokenizer of the kind '{}' (tokenizer.ggml.model); known are gpt2, llama, gemma4 and t5. Put the "
                 "publisher's tokenizer.json beside the file",
                 t.model);
  }
  const bool add_bos = t.add_bos.value_or(adds_bos) && t.bos, add_eos = t.add_eos.value_or(adds_eos) && t.eos;
  ordered whole = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  whole["added_tokens"] = added_tokens_of(t);
  for (const char* part : {"normalizer", "pre_tokenizer"}) whole[part] = std::move(file[part]);
  whole["post_processor"] = post_processor(t, add_bos, add_eos);
  for (const char* part : {"decoder", "model"}) whole[part] = std::move(file[part]);

  auto tokenizer = printed(whole, "tokenizer.json");
  RETURN_IF_ERROR(tokenizer);
  auto config = printed(config_of(t, add_bos, add_eos), "tokenizer_config.json");
  RETURN_IF_ERROR(config);
  return TokenizerFiles{std::move(*tokenizer), std::move(*config)};
}

}  // namespace onw
