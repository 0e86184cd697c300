#include "convert/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace onw {
namespace {

using nlohmann::json;
using testing::HasSubstr;

GgufTokenizer byte_level(std::string_view pre) {
  return {.model = "gpt2",
          .pre = pre,
          .tokens = {"a", "b", "ab", "<|end|>"},
          .types = {1, 1, 1, kControl},
          .merges = {"a b", "a z", "ab"},
          .eos = 3};
}

GgufTokenizer sentencepiece() {
  return {.model = "llama",
          .tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "  ", "aa"},
          .scores = {0, 0, 0, -1, -2, -3, -1000, -4},
          .types = {kUnknown, kControl, kControl, 1, 1, 1, kUserDefined, 1},
          .bos = 1,
          .eos = 2,
          .unk = 0};
}

json tokenizer_json(const GgufTokenizer& t) { return json::parse(tokenizer_from_gguf(t).value().tokenizer_json); }
json config_json(const GgufTokenizer& t) { return json::parse(tokenizer_from_gguf(t).value().tokenizer_config_json); }

TEST(GgufTokenizer, keeps_ids_and_useful_merges_of_a_byte_level_bpe) {
  const json file = tokenizer_json(byte_level("smollm"));
  EXPECT_EQ(file["model"]["vocab"], json({{"a", 0}, {"b", 1}, {"ab", 2}, {"<|end|>", 3}}));
  EXPECT_EQ(file["model"]["merges"], json::parse(R"([["a", "b"]])"));
  EXPECT_EQ(file["pre_tokenizer"]["pretokenizers"][0], json({{"type", "Digits"}, {"individual_digits", true}}));
  EXPECT_EQ(file["added_tokens"].size(), 1u);
  EXPECT_EQ(file["added_tokens"][0]["special"], true);
}

TEST(GgufTokenizer, cuts_as_the_named_pre_tokenizer_does) {
  const auto expression = [](std::string_view pre) {
    return tokenizer_json(byte_level(pre))["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].get<std::string>();
  };
  EXPECT_THAT(expression("llama-bpe"), HasSubstr(R"(\p{N}{1,3})"));
  EXPECT_THAT(expression("qwen2"), HasSubstr(R"(|\p{N}|)"));
  EXPECT_THAT(expression("qwen35"), HasSubstr(R"([\p{L}\p{M}]+)"));
  EXPECT_EQ(tokenizer_json(byte_level("qwen2"))["normalizer"], json({{"type", "NFC"}}));
  EXPECT_EQ(tokenizer_json(byte_level("llama-bpe"))["normalizer"], json());
  EXPECT_EQ(tokenizer_json(byte_level("llama-bpe"))["model"]["ignore_merges"], true);
  EXPECT_EQ(tokenizer_json(byte_level("dbrx"))["model"]["ignore_merges"], false);
  EXPECT_EQ(tokenizer_json(byte_level("deepseek-v3"))["pre_tokenizer"]["pretokenizers"].size(), 4u);
}

TEST(GgufTokenizer, names_what_it_does_not_know) {
  const auto refusal = [](const GgufTokenizer& t) { return tokenizer_from_gguf(t).error().message; };
  EXPECT_THAT(refusal(byte_level("from-elsewhere")), HasSubstr("'from-elsewhere'"));
  EXPECT_THAT(refusal({.model = "rwkv", .tokens = {"a"}}), HasSubstr("'rwkv'"));
}

TEST(GgufTokenizer, merges_sentencepiece_by_score_and_user_defined_first) {
  const json merges = tokenizer_json(sentencepiece())["model"]["merges"];
  EXPECT_EQ(merges, json::parse(R"([["▁", "▁"], ["▁", "a"], ["a", "a"]])"));
  EXPECT_EQ(tokenizer_json(sentencepiece())["model"]["vocab"]["\u2581\u2581"], 6);
  EXPECT_EQ(tokenizer_json(sentencepiece())["normalizer"]["normalizers"].size(), 2u);
  GgufTokenizer without = sentencepiece();
  without.add_space_prefix = false;
  EXPECT_EQ(tokenizer_json(without)["normalizer"]["normalizers"].size(), 1u);
}

TEST(GgufTokenizer, says_in_the_config_what_the_file_says) {
  GgufTokenizer t = sentencepiece();
  t.chat_template = "{{ bos_token }}";
  EXPECT_EQ(config_json(t)["bos_token"], "<s>");
  EXPECT_EQ(config_json(t)["add_bos_token"], true);
  EXPECT_EQ(config_json(t)["chat_template"], "{{ bos_token }}");
  EXPECT_EQ(tokenizer_json(t)["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
  t.add_bos = false;
  EXPECT_EQ(config_json(t)["add_bos_token"], false);
  EXPECT_EQ(tokenizer_json(t)["post_processor"], json());
  EXPECT_EQ(config_json(byte_level("smollm"))["add_bos_token"], false);
  EXPECT_FALSE(config_json(byte_level("smollm")).contains("bos_token"));
}

TEST(GgufTokenizer, has_a_table_of_pieces_for_unigram) {
  const GgufTokenizer t = {.model = "t5",
                           .tokens = {"<pad>", "</s>", "<unk>", "\u2581a", "<0x41>"},
                           .scores = {0, 0, 0, -1.5f, 0},
                           .types = {kControl, kControl, kUnknown, 1, kByte},
                           .precompiled_charsmap = std::string_view("\0\1\2\3", 4),
                           .eos = 1,
                           .unk = 2};
  const json file = tokenizer_json(t);
  EXPECT_EQ(file["model"]["vocab"][3], json({"\u2581a", -1.5}));
  EXPECT_EQ(file["model"]["unk_id"], 2);
  EXPECT_EQ(file["model"]["byte_fallback"], true);
  EXPECT_EQ(file["normalizer"]["normalizers"][0]["precompiled_charsmap"], "AAECAw==");
  EXPECT_EQ(file["post_processor"]["single"][1]["SpecialToken"]["id"], "</s>");
}

TEST(GgufTokenizer, refuses_lists_that_do_not_fit_together) {
  const auto refusal = [](GgufTokenizer t, auto change) {
    change(t);
    return tokenizer_from_gguf(t).error().message;
  };
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.scores.pop_back(); }), HasSubstr("7 entries for 8 tokens"));
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.types.pop_back(); }), HasSubstr("7 entries for 8 tokens"));
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.scores[3] = NAN; }), HasSubstr("no number"));
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.tokens.clear(); }), HasSubstr("empty"));
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.bos = 8; }), HasSubstr("id 8"));
  EXPECT_THAT(refusal(sentencepiece(), [](auto& t) { t.tokens[4] = "\xFF"; }), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace onw
