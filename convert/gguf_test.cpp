#include "convert/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "convert/gguf_bytes.h"

namespace onw {
namespace {

using testing::HasSubstr;

Result<GgufHeader> parse(const std::string& file) { return parse_gguf(std::as_bytes(std::span(file)), "m.gguf"); }

std::string refusal(const GgufBytes& file) {
  const auto parsed = parse(file.bytes());
  return parsed ? "accepted" : parsed.error().message;
}

// One F32 tensor [3, 2] and one key of each kind.
std::string small_file(uint32_t version = 3) {
  GgufBytes b;
  b.header(2, 6, version)
      .key_text("general.architecture", "llama")
      .key_u32("llama.block_count", 7)
      .key_f32("eps", 0.5f);
  b.key_bool("flag", true).key_texts("tokens", {"a", "", "ç"}).key_numbers<int32_t>("types", 5, {1, -6});
  b.tensor("w", {2, 3}, 0, 0).tensor("q", {64}, 2, 32).pad();
  b.data(std::string(24, 'w')).pad().data(std::string(36, 'q'));
  return b.bytes();
}

TEST(Gguf, reads_metadata_and_finds_each_tensor) {
  TempFolder folder;
  for (const uint32_t version : {2u, 3u}) {
    const auto file = GgufFile::open(folder.write("m.gguf", small_file(version)));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->architecture(), "llama");
    EXPECT_EQ(file->integer("llama.block_count"), 7);
    EXPECT_EQ(file->number("eps"), 0.5);
    EXPECT_EQ(file->number("llama.block_count"), 7);
    EXPECT_EQ(file->boolean("flag"), true);
    EXPECT_EQ(file->array("tokens")->strings, (std::vector<std::string_view>{"a", "", "ç"}));
    EXPECT_EQ(file->array("types")->integer(1), -6);
    EXPECT_FALSE(file->integer("general.architecture"));
    EXPECT_FALSE(file->string("absent"));
    ASSERT_NE(file->find("w"), nullptr);
    EXPECT_EQ(file->find("w")->shape, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(file->bytes(*file->find("w")).size(), 24u);
    EXPECT_EQ(file->bytes(*file->find("q")).size(), 36u);
    EXPECT_EQ(file->bytes(*file->find("q"))[0], std::byte{'q'});
    EXPECT_EQ(file->find("absent"), nullptr);
  }
}

// CASES: formats-133
TEST(Gguf, a_file_cut_anywhere_is_refused) {
  const std::string whole = small_file();
  ASSERT_TRUE(parse(whole));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_FALSE(parse(whole.substr(0, bytes))) << bytes;
  EXPECT_THAT(parse(whole.substr(0, whole.size() - 1)).error().message, HasSubstr("'q' ends at byte 68 of the data"));
}

// CASES: formats-123
TEST(Gguf, counts_and_dimensions_near_the_end_of_the_range_do_not_wrap) {
  for (const uint64_t n :
       {uint64_t{1} << 63, (uint64_t{1} << 63) - 1, UINT64_MAX, UINT64_MAX / 2 + 2, uint64_t{1} << 32}) {
    EXPECT_THAT(refusal(GgufBytes().header(n, 0).pad()), HasSubstr("claims")) << n;
    EXPECT_THAT(refusal(GgufBytes().header(0, n).pad()), HasSubstr("claims")) << n;
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {n}, 0, 0).pad().data("x")), "accepted") << n;
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {n, n}, 0, 0).pad().data("x")), "accepted") << n;
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {32, n, 4, n}, 2, 0).pad().data("x")), "accepted") << n;
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {1}, 0, n & ~uint64_t{31}).pad().data("xxxx")), "accepted")
        << n;
    EXPECT_THAT(refusal(GgufBytes().header(0, 1).text("k").put<uint32_t>(9).put<uint32_t>(10).put(n).pad()),
                HasSubstr("elements"))
        << n;
    EXPECT_THAT(refusal(GgufBytes().header(0, 1).text("k").put<uint32_t>(9).put<uint32_t>(8).put(n).pad()),
                HasSubstr("elements"))
        << n;
  }
}

// CASES: formats-125
TEST(Gguf, alignment_and_string_lengths_are_bounded) {
  for (const uint32_t alignment : {0u, 3u, 24u, 1u << 31, 1u << 17})
    EXPECT_THAT(refusal(GgufBytes().header(0, 1).key_u32("general.alignment", alignment)), HasSubstr("power of two"))
        << alignment;
  EXPECT_THAT(refusal(GgufBytes().header(0, 1).key_text("general.alignment", "32")), HasSubstr("power of two"));
  EXPECT_EQ(refusal(GgufBytes().header(0, 1).key_u32("general.alignment", 64)), "accepted");
  for (const uint64_t length : {uint64_t{100}, UINT64_MAX, uint64_t{1} << 63})
    EXPECT_THAT(refusal(GgufBytes().header(0, 1).put(length).pad(64)), HasSubstr("left of")) << length;
}

// CASES: formats-126
TEST(Gguf, the_number_of_dimensions_is_checked_in_release_builds_too) {
  for (const size_t dims : {0, 5, 9, 255})
    EXPECT_THAT(refusal(GgufBytes().header(1, 0).tensor("w", std::vector<uint64_t>(dims, 1), 0, 0).pad().data("xxxx")),
                HasSubstr(fmt::format("'w' has {} dimensions", dims)));
  EXPECT_THAT(refusal(GgufBytes().header(1, 0).text("w").put<uint32_t>(UINT32_MAX).pad(64)), HasSubstr("dimensions"));
}

// CASES: formats-128
TEST(Gguf, sizes_that_would_wrap_when_padded_or_summed_are_refused) {
  for (uint64_t k = 0; k < 70; ++k) {
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {UINT64_MAX - k}, 0, 0).pad().data("xxxx")), "accepted");
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {INT64_MAX - k}, 24, 0).pad().data("xxxx")), "accepted");
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {1}, 0, UINT64_MAX - k).pad().data("xxxx")), "accepted");
    EXPECT_NE(refusal(GgufBytes().header(1, 0).tensor("w", {1}, 0, INT64_MAX - k).pad().data("xxxx")), "accepted");
  }
}

TEST(Gguf, refuses_tensors_that_lie_wrongly) {
  EXPECT_THAT(
      refusal(
          GgufBytes().header(2, 0).tensor("a", {16}, 0, 0).tensor("b", {16}, 0, 32).pad().data(std::string(96, 'x'))),
      HasSubstr("'b' begins at byte"));
  EXPECT_THAT(refusal(GgufBytes().header(1, 0).tensor("a", {16}, 0, 8).pad().data(std::string(96, 'x'))),
              HasSubstr("multiple of the alignment"));
  EXPECT_THAT(refusal(GgufBytes().header(1, 0).tensor("a", {33}, 2, 0).pad().data(std::string(96, 'x'))),
              HasSubstr("needs a multiple of 32"));
  EXPECT_THAT(refusal(GgufBytes().header(1, 0).tensor("a", {32}, 4, 0).pad().data(std::string(96, 'x'))),
              HasSubstr("unknown type 4"));
}

TEST(Gguf, refuses_what_occurs_twice) {
  EXPECT_THAT(refusal(GgufBytes().header(0, 2).key_u32("k", 1).key_u32("k", 2)), HasSubstr("'k' occurs twice"));
  TempFolder folder;
  GgufBytes twice;
  twice.header(2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).pad().data(std::string(36, 'x'));
  EXPECT_THAT(GgufFile::open(folder.write("m.gguf", twice.bytes())).error().message, HasSubstr("'a' occurs twice"));
}

TEST(Gguf, refuses_what_is_something_else) {
  EXPECT_THAT(parse("version https://git-lfs.github.com/spec/v1\n").error().message, HasSubstr("LFS"));
  EXPECT_THAT(parse("{\"a\": 1} padding").error().message, HasSubstr("Is it a GGUF file?"));
  EXPECT_THAT(refusal(GgufBytes().header(0, 0, 1)), HasSubstr("GGUF version 1"));
  EXPECT_THAT(refusal(GgufBytes().header(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(GgufBytes().header(0, 1).text("k").put<uint32_t>(13).pad(64)), HasSubstr("value type 13"));
  EXPECT_THAT(refusal(GgufBytes().header(0, 1).text("k").put<uint32_t>(9).put<uint32_t>(9).put<uint64_t>(1).pad(64)),
              HasSubstr("list of type 9"));
}

}  // namespace
}  // namespace onw
