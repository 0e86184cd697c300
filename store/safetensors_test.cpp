#include "store/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "store/safetensors_bytes.h"

namespace onw {
namespace {

using testing::HasSubstr;

// A whole file, its data being `data_bytes` bytes that count up.
std::string file_of(std::string_view header, size_t data_bytes) {
  std::string data;
  for (size_t i = 0; i < data_bytes; ++i) data.push_back(static_cast<char>(i));
  return safetensors_bytes(header, data);
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

// Why the header is refused.
std::string refusal(std::string_view header, size_t data_bytes) {
  const auto parsed = parse(file_of(header, data_bytes));
  return parsed ? "accepted" : parsed.error().message;
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
    R"("a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}})";

TEST(Safetensors, finds_each_tensor_where_it_lies) {
  TempFolder folder;
  const auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of(kTwo, 20)));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  const SafeTensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, ElementType::f32);
  EXPECT_EQ(file->bytes(*b).size(), 8u);
  EXPECT_EQ(file->bytes(*b)[0], std::byte{12});
  EXPECT_EQ(file->find("a")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, stays_valid_when_the_object_moves) {
  TempFolder folder;
  auto opened = SafetensorsFile::open(folder.write("m.safetensors", file_of(kTwo, 20)));
  ASSERT_TRUE(opened);
  const SafetensorsFile moved = std::move(*opened);
  ASSERT_NE(moved.find("a"), nullptr);
  EXPECT_EQ(moved.bytes(*moved.find("a"))[5], std::byte{5});
}

TEST(Safetensors, takes_empty_tensors_and_scalars) {
  const auto parsed = parse(file_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                    R"("e":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]},)"
                                    R"("z":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                                    4));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tensors.size(), 3u);
}

// CASES: formats-130
TEST(Safetensors, refuses_offsets_that_disagree_with_shape_or_file) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("begin <= end"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("needs 12 bytes, its data_offsets give 8"));
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12),
      HasSubstr("overlap"));
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
          20),
      HasSubstr("gap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), HasSubstr("gap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 8), HasSubstr("'a' ends at byte"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9), HasSubstr("the tensors end at"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8), HasSubstr("whole number"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 8),
      HasSubstr("2^63"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("no list 'data_offsets'"));
  EXPECT_THAT(refusal(R"({"a":[1]})", 8), HasSubstr("not an object"));
}

// CASES: formats-131
TEST(Safetensors, an_unknown_dtype_is_named_with_its_tensor) {
  const auto parsed = parse(file_of(R"({"w.weight":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", 8));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::unsupported);
  EXPECT_THAT(parsed.error().message, HasSubstr("'w.weight' has dtype 'F7'"));
}

// CASES: formats-133
TEST(Safetensors, a_file_cut_short_is_refused_with_both_sizes) {
  const std::string whole = file_of(kTwo, 20);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_FALSE(parse(whole.substr(0, bytes))) << bytes;
  const auto cut = parse(whole.substr(0, whole.size() - 1));
  EXPECT_EQ(cut.error().code, Code::truncated_file);
  EXPECT_THAT(cut.error().message,
              HasSubstr(fmt::format("ends at byte {}, the file has {}", whole.size(), whole.size() - 1)));
}

TEST(Safetensors, refuses_what_is_something_else) {
  EXPECT_THAT(parse("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n").error().message,
              HasSubstr("LFS"));
  EXPECT_THAT(parse(std::string(64, '\xff')).error().message, HasSubstr("Is it a safetensors file?"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{", 0), HasSubstr("not valid JSON"));
  EXPECT_EQ(refusal("{}", 0), "accepted");
}

}  // namespace
}  // namespace onw
