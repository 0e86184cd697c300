// Small tokenizer.json files for tests: real in every part, a few tokens each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace onw::tiny {

using nlohmann::json;

inline std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
          static_cast<char>(0x80 | (c & 0x3F))};
}

// The character that stands for a byte in byte-level vocabularies.
inline std::string byte_char(int byte) {
  uint32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = plain ? static_cast<uint32_t>(b) : next++;
    if (b == byte) return utf8(c);
  }
  return {};
}

inline json added(int id, const std::string& content, bool special = true, bool normalized = false) {
  return {{"id", id},        {"content", content}, {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"special", special}, {"normalized", normalized}};
}

// ids 0..255 the bytes, 256 "he", 257 "ll", 258 "Ġhe", then added: 259 <s>, 260 <|im_start|>, 261 <|im_end|>,
// 262 <think> and 263 </think> (not special, as published), 264 <|image_pad|>.
inline std::string byte_level(bool with_bos = false) {
  json vocab;
  for (int b = 0; b < 256; ++b) vocab[byte_char(b)] = b;
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["\u0120he"] = 258;
  json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {added(259, "<s>"), added(260, "<|im_start|>"), added(261, "<|im_end|>"), added(262, "<think>", false),
        added(263, "</think>", false), added(264, "<|image_pad|>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "l l", "\u0120 he"}}}}};
  if (with_bos)
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {259}}, {"tokens", {"<s>"}}}}}}};
  return file.dump();
}

// SentencePiece BPE: 0 <unk>, 1 <s>, 2 </s>, 3..258 <0x00>..<0xFF>, then "▁", "a", "b", "▁a", "ab", "▁ab", and as an
// added token 265 "\n\n". The text gets one space in front, and the decoder takes it away.
inline std::string sentencepiece() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  int id = 259;
  for (const char* piece : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"}) vocab[piece] = id++;
  const json space = {{"String", " "}};
  return json{{"version", "1.0"},
              {"added_tokens", {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(265, "\n\n", false)}},
              {"normalizer",
               {{"type", "Sequence"},
                {"normalizers",
                 {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                  {{"type", "Replace"}, {"pattern", space}, {"content", "\u2581"}}}}}},
              {"pre_tokenizer", nullptr},
              {"post_processor", nullptr},
              {"decoder",
               {{"type", "Sequence"},
                {"decoders",
                 {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                  {{"type", "ByteFallback"}},
                  {{"type", "Fuse"}},
                  {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
              {"model",
               {{"type", "BPE"},
                {"unk_token", "<unk>"},
                {"fuse_unk", true},
                {"byte_fallback", true},
                {"vocab", vocab},
                {"merges", {"\u2581 a", "a b", "\u2581 ab", "\u2581a b"}}}}}
      .dump();
}

}  // namespace onw::tiny
