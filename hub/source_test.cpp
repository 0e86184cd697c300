#include "hub/source.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

constexpr std::string_view kHub = "http://127.0.0.1:8080";

TEST(HubSource, reads_ids_with_and_without_a_revision) {
  const auto plain = parse_source("org/name-1.5_b", kHub);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repository, "org/name-1.5_b");
  EXPECT_EQ(plain->revision, "");
  const auto tagged = parse_source("org/name@v1", kHub);
  ASSERT_TRUE(tagged);
  EXPECT_EQ(tagged->repository, "org/name");
  EXPECT_EQ(tagged->revision, "v1");
}

TEST(HubSource, reads_addresses_of_the_hub) {
  const auto page = parse_source("https://huggingface.co/org/name/", kHub);
  ASSERT_TRUE(page);
  EXPECT_EQ(page->repository, "org/name");
  const auto file = parse_source("http://127.0.0.1:8080/org/name/blob/main/sub/model.gguf?download=true", kHub);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->repository, "org/name");
  EXPECT_EQ(file->revision, "main");
  EXPECT_EQ(file->file, "sub/model.gguf");
}

TEST(HubSource, reads_the_address_of_a_file_elsewhere) {
  const auto file = parse_source("https://example.org/models/m.gguf?x=1", kHub);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->repository, "");
  EXPECT_EQ(file->file, "m.gguf");
  EXPECT_EQ(file->url, "https://example.org/models/m.gguf?x=1");
}

TEST(HubSource, refuses_what_names_no_model) {
  for (const auto text :
       {"", "/", "a/b/c", "../x", "org/..", "org/na me", "org/name@", "https://example.org", "https://example.org/",
        "https://huggingface.co/org", "https://huggingface.co/org/name/blob", "https://huggingface.co/org/name/tree",
        "https://huggingface.co/org/name/blob/main/../../x"}) {
    const auto source = parse_source(text, kHub);
    EXPECT_FALSE(source) << text;
  }
}

// hub-141
TEST(HubFileName, cannot_leave_the_folder_on_any_system) {
  using namespace std::string_view_literals;
  for (const auto name : {"../x"sv,     "a/../../x"sv, "/etc/x"sv, "C:\\x"sv, "a\\b"sv, "C:x"sv, "a//b"sv,
                          ""sv,         "."sv,         "a/."sv,    "x\0y"sv,  "a\nb"sv, "con"sv, "sub/NUL.txt"sv,
                          "com1.bin"sv, "a."sv,        "a "sv,     "a/"sv,    "a*b"sv,  "a?b"sv})
    EXPECT_FALSE(check_file_name(name)) << name;
  EXPECT_FALSE(check_file_name(std::string(300, 'a')));
}

TEST(HubFileName, may_be_anything_usual) {
  for (const auto name :
       {"config.json", ".gitattributes", "sub/dir/model-00001-of-00002.safetensors", "模型 é.gguf", "console.txt"})
    EXPECT_TRUE(check_file_name(name)) << name;
}

TEST(HubPath, is_encoded_for_an_address) { EXPECT_EQ(encode_path("a b/é%.txt"), "a%20b/%C3%A9%25.txt"); }

}  // namespace
}  // namespace onw
