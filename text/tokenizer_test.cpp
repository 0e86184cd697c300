#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/temp_folder.h"
#include "text/text.h"
#include "text/tiny_tokenizers.h"

namespace onw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Range = std::pair<int64_t, int64_t>;

Tokenizer byte_level(bool with_bos = false, std::string_view config = {}) {
  return Tokenizer::from_json(tiny::byte_level(with_bos), config).value();
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special = false) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id).value();
    EXPECT_NO_THROW(nlohmann::json(part).dump());  // throws on half a character
    text += part;
  }
  return text + stream.finish().value();
}

TEST(Tokenizer, gives_ids_and_offsets_in_bytes) {
  const auto encoding = byte_level().encode("hell he\u3042").value();
  EXPECT_THAT(encoding.ids, ElementsAre(256, 257, 258, 0xE3, 0x81, 0x82));
  EXPECT_THAT(encoding.offsets,
              ElementsAre(Range{0, 2}, Range{2, 4}, Range{4, 7}, Range{7, 10}, Range{7, 10}, Range{7, 10}));
}

TEST(Tokenizer, leaves_added_tokens_in_plain_text_as_text) {
  const auto tokenizer = byte_level();
  for (const auto& token : tokenizer.added_tokens()) {
    const auto ids = tokenizer.encode("x" + token.content + "y").value().ids;
    EXPECT_THAT(ids, testing::Each(testing::Lt(259))) << token.content;
    EXPECT_EQ(tokenizer.decode(ids).value(), "x" + token.content + "y");
  }
}

TEST(Tokenizer, matches_added_tokens_when_asked) {
  const auto encoding = byte_level().encode("a<|im_start|><think>", {.special = true}).value();
  EXPECT_THAT(encoding.ids, ElementsAre('a', 260, 262));
  EXPECT_THAT(encoding.offsets, ElementsAre(Range{0, 1}, Range{1, 13}, Range{13, 20}));
}

TEST(Tokenizer, takes_white_space_among_the_added_tokens_for_text) {
  const auto tokenizer = Tokenizer::from_json(tiny::sentencepiece()).value();
  const auto encoding = tokenizer.encode("ab\n\na</s>").value();
  EXPECT_EQ(encoding.ids[1], 265);
  EXPECT_THAT(encoding.ids, testing::Not(testing::Contains(2)));
  EXPECT_EQ(encoding.offsets[1], Range(2, 4));
  EXPECT_EQ(tokenizer.encode("ab\n\na").value().ids, tokenizer.encode("ab\n\na", {.special = true}).value().ids);
}

TEST(Tokenizer, begins_with_bos_exactly_once) {
  const auto tokenizer = byte_level(/*with_bos=*/true);
  EXPECT_EQ(tokenizer.bos(), 259);
  EXPECT_THAT(tokenizer.encode("a").value().ids, ElementsAre('a'));
  EXPECT_THAT(tokenizer.encode("a", {.bos = true}).value().ids, ElementsAre(259, 'a'));
  EXPECT_THAT(tokenizer.encode("a", {.bos = true, .template_ids = true}).value().ids, ElementsAre(259, 'a'));
  EXPECT_THAT(tokenizer.encode("<s>a", {.special = true, .bos = true}).value().ids, ElementsAre(259, 'a'));
  EXPECT_THAT(tokenizer.encode("", {.bos = true}).value().ids, ElementsAre(259));
}

TEST(Tokenizer, adds_bos_as_the_config_says_and_otherwise_as_the_post_processor_does) {
  const auto adds = [](bool post_processor, const char* config) {
    return byte_level(post_processor, config).adds_bos();
  };
  EXPECT_TRUE(adds(true, R"({"bos_token": "<s>", "add_bos_token": null})"));
  EXPECT_TRUE(adds(true, R"({"bos_token": "<s>"})"));
  EXPECT_FALSE(adds(true, R"({"bos_token": "<s>", "add_bos_token": false})"));
  EXPECT_TRUE(adds(false, R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})"));
  EXPECT_FALSE(adds(false, R"({"bos_token": "<s>"})"));
  EXPECT_FALSE(adds(false, R"({"add_bos_token": true})"));  // there is none
}

TEST(Tokenizer, knows_its_vocabulary) {
  const auto tokenizer = byte_level();
  EXPECT_EQ(tokenizer.vocabulary_size(), 265);
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), 261);
  EXPECT_EQ(tokenizer.id_of("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.piece(258), "\u0120he");
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(258).value(), " he");
  EXPECT_EQ(tokenizer.token_bytes(0xE3).value(), "\xE3");
  EXPECT_FALSE(tokenizer.token_bytes(999));
}

TEST(Tokenizer, reads_a_folder_and_names_what_is_wrong_in_it) {
  const TempFolder folder;
  EXPECT_EQ(Tokenizer::open(folder.path()).error().code, Code::not_found);
  folder.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_THAT(Tokenizer::open(folder.path()).error().message, HasSubstr("Git LFS"));
  folder.write("tokenizer.json", R"({"model": 5})");
  EXPECT_THAT(Tokenizer::open(folder.path()).error().message, HasSubstr("tokenizer.json"));
  folder.write("tokenizer.json", tiny::byte_level());
  EXPECT_TRUE(Tokenizer::open(folder.path()));
  folder.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(Tokenizer::open(folder.path())->eos(), 261);
  folder.write("tokenizer_config.json", "[");
  EXPECT_THAT(Tokenizer::open(folder.path()).error().message, HasSubstr("tokenizer_config.json"));
  folder.write("tokenizer_config.json", std::string(100'000, '['));
  EXPECT_THAT(Tokenizer::open(folder.path()).error().message, HasSubstr("deeper than 64"));
}

TEST(Tokenizer, refuses_what_is_not_text_or_too_long) {
  const auto tokenizer = byte_level();
  EXPECT_THAT(tokenizer.encode("ab\xC3\x28").error().message, HasSubstr("UTF-8 at byte 2"));
  EXPECT_THAT(tokenizer.encode(std::string(kMaxTextBytes + 1, 'a')).error().message, HasSubstr("4194304"));
}

TEST(Tokenizer, gives_an_answer_or_an_error_on_very_long_runs) {
  const auto tokenizer = byte_level();
  for (const char c : {'h', ' ', '\n'}) {
    const std::string run(1 << 18, c);
    const auto encoding = tokenizer.encode(run + "x");
    if (encoding)
      EXPECT_EQ(tokenizer.decode(encoding->ids).value(), run + "x");
    else
      EXPECT_THAT(encoding.error().message, HasSubstr("long runs"));
  }
}

TEST(Tokenizer, works_in_several_threads_at_once) {
  const auto tokenizer = byte_level();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(tokenizer.encode("hell he").value().ids.size(), 3u);
    });
  for (auto& thread : threads) thread.join();
}

// text-stream-003
TEST(StreamDecoder, never_emits_half_a_character_and_equals_one_shot_decoding) {
  const auto bytes = byte_level();
  const auto pieces = Tokenizer::from_json(tiny::sentencepiece()).value();
  for (const char* text :
       {"a \U0001F600 b", "\u3042\u3044", "  a  ab ", "e\u0301\U0001F469\u200D\U0001F680", " a", "\n\n"}) {
    for (const Tokenizer* tokenizer : {&bytes, &pieces}) {
      const auto ids = tokenizer->encode(text).value().ids;
      EXPECT_EQ(streamed(*tokenizer, ids), text);
      EXPECT_EQ(tokenizer->decode(ids).value(), text);
    }
  }
}

TEST(StreamDecoder, equals_one_shot_decoding_on_any_ids) {
  const auto bytes = byte_level();
  const auto pieces = Tokenizer::from_json(tiny::sentencepiece()).value();
  uint32_t state = 1;
  for (int run = 0; run < 1000; ++run) {
    for (const Tokenizer* tokenizer : {&bytes, &pieces}) {
      std::vector<int32_t> ids;
      for (int i = 0; i < 12; ++i) {
        state = state * 1664525 + 1013904223;
        // Half of them from the high bytes, where characters begin and break; some beyond the vocabulary.
        const uint32_t draw = state >> 8;
        ids.push_back(draw % 2 != 0 ? 0xC3 + draw / 2 % 60 : draw / 2 % 270);
      }
      EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids).value());
      EXPECT_EQ(streamed(*tokenizer, ids, true), tokenizer->decode(ids, true).value());
    }
  }
}

TEST(StreamDecoder, shows_a_character_as_soon_as_it_is_whole) {
  const auto tokenizer = byte_level();
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xF0).value(), "");
  EXPECT_EQ(stream.push(0x9F).value(), "");
  EXPECT_EQ(stream.push(0x98).value(), "");
  EXPECT_EQ(stream.push(0x80).value(), "\U0001F600");
  EXPECT_EQ(stream.push(261).value(), "<|im_end|>");
  EXPECT_EQ(stream.push(0xF0).value(), "");
  EXPECT_EQ(stream.finish().value(), "\uFFFD");
}

}  // namespace
}  // namespace onw
