#include "hub/listing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onw {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HubListing listing_of(std::initializer_list<const char*> names) {
  HubListing listing{"org/name", "c0ffee", "", {}};
  for (const auto* name : names) listing.files.push_back({name, 1, "", ""});
  return listing;
}

std::vector<std::string> chosen(const HubListing& listing, std::string_view only = "") {
  const auto files = choose_files(listing, only);
  if (!files) return {"error: " + files.error().message};
  std::vector<std::string> names;
  for (const auto& file : *files) names.push_back(file.name);
  return names;
}

TEST(HubListing, reads_sizes_and_digests) {
  const std::string sha256(64, 'a');
  const auto listing = parse_listing(fmt::format(
      R"({{"id":"org/name","sha":"c0ffee","cardData":{{"license":"mit"}},"siblings":[
        {{"rfilename":"config.json","size":12,"blobId":"{}"}},
        {{"rfilename":"m.safetensors","size":130,"blobId":"{}","lfs":{{"sha256":"{}","size":99,"pointerSize":130}}}}]}})",
      std::string(40, 'b'), std::string(40, 'c'), sha256));
  ASSERT_TRUE(listing) << listing.error().message;
  EXPECT_EQ(listing->revision, "c0ffee");
  EXPECT_EQ(listing->licence, "mit");
  ASSERT_EQ(listing->files.size(), 2u);
  EXPECT_EQ(listing->files[0].git_sha1, std::string(40, 'b'));
  EXPECT_EQ(listing->files[1].sha256, sha256);
  EXPECT_EQ(listing->files[1].bytes, 99);
  EXPECT_EQ(listing->files[1].git_sha1, "");
}

// hub-141
TEST(HubListing, with_a_name_that_leads_elsewhere_is_refused_whole) {
  for (const auto* name : {"../x", "C:\\\\x", "/etc/x", "a\\u0000b"})
    EXPECT_FALSE(parse_listing(fmt::format(R"({{"siblings":[{{"rfilename":"ok.json"}},{{"rfilename":"{}"}}]}})", name)))
        << name;
}

TEST(HubListing, that_is_none_is_an_error) {
  for (const auto* text :
       {"", "[]", "{}", "<html>", R"({"siblings":3})", R"({"siblings":[3]})", R"({"siblings":[{}]})"})
    EXPECT_FALSE(parse_listing(text)) << text;
  EXPECT_FALSE(parse_listing(R"({"siblings":)" + std::string(5000, '[') + std::string(5000, ']') + "}"));
}

TEST(ChooseFiles, takes_weights_with_what_belongs_to_them) {
  EXPECT_THAT(chosen(listing_of({"README.md", "config.json", "tokenizer.json", "chat_template.jinja",
                                 "model.safetensors", "pytorch_model.bin", "onnx/config.json", "LICENSE"})),
              ElementsAre("config.json", "tokenizer.json", "chat_template.jinja", "LICENSE", "model.safetensors"));
}

TEST(ChooseFiles, takes_the_index_instead_of_every_file_that_lies_about) {
  EXPECT_THAT(chosen(listing_of({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors", "model.safetensors.index.json"})),
              ElementsAre("config.json", "model.safetensors.index.json"));
}

// formats-135
TEST(ChooseShards, takes_the_files_of_the_index_and_no_other) {
  const auto listing = listing_of({"a.safetensors", "b.safetensors", "consolidated.safetensors"});
  const auto shards =
      choose_shards(listing, R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"a.safetensors"}})");
  ASSERT_TRUE(shards);
  ASSERT_EQ(shards->size(), 2u);
  EXPECT_EQ((*shards)[0].name, "a.safetensors");
  EXPECT_FALSE(choose_shards(listing, R"({"weight_map":{"x":"c.safetensors"}})"));
  EXPECT_FALSE(choose_shards(listing, R"({"weight_map":{"x":3}})"));
  EXPECT_FALSE(choose_shards(listing, "{}"));
}

TEST(ChooseFiles, asks_which_of_several_models_is_meant) {
  EXPECT_THAT(chosen(listing_of({"m-Q4_0.gguf", "m-Q8_0.gguf"}))[0], HasSubstr("--file: m-Q4_0.gguf, m-Q8_0.gguf"));
  EXPECT_THAT(chosen(listing_of({"m-Q4_0.gguf", "m-Q8_0.gguf"}), "m-Q8_0.gguf"), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(chosen(listing_of({"m-Q4_0.gguf", "mmproj-m.gguf"})), ElementsAre("m-Q4_0.gguf"));
  EXPECT_THAT(chosen(listing_of({"m-Q4_0.gguf"}), "x.gguf")[0], HasSubstr("no file 'x.gguf'"));
}

TEST(ChooseFiles, says_when_there_is_nothing_to_read) {
  EXPECT_THAT(chosen(listing_of({"config.json", "pytorch_model.bin"}))[0], HasSubstr("no weights that onw reads"));
}

}  // namespace
}  // namespace onw
