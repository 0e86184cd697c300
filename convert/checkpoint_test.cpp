#include "convert/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "store/safetensors_bytes.h"

namespace onw {
namespace {

using testing::HasSubstr;

constexpr float kValues[] = {1, 2, 3, 4};

std::string one_tensor(std::string_view name) { return SafetensorsBytes().add_f32(name, {2, 2}, kValues).bytes(); }

TempFolder sharded() {
  TempFolder folder;
  folder.write("config.json", R"({"architectures":["LlamaForCausalLM"]})");
  folder.write("model-00001-of-00002.safetensors", one_tensor("model.a"));
  folder.write("model-00002-of-00002.safetensors", one_tensor("model.b"));
  folder.write(
      "model.safetensors.index.json",
      R"({"weight_map":{"model.a":"model-00001-of-00002.safetensors","model.b":"model-00002-of-00002.safetensors"}})");
  return folder;
}

std::string refusal(const TempFolder& folder) {
  const auto opened = HfCheckpoint::open(folder.path());
  return opened ? "accepted" : opened.error().message;
}

TEST(HfCheckpoint, reads_one_file_or_those_of_the_index) {
  TempFolder single;
  single.write("config.json", "{}");
  single.write("model.safetensors", one_tensor("model.a"));
  const auto one = HfCheckpoint::open(single.path());
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_NE(one->find("model.a").tensor, nullptr);

  const TempFolder folder = sharded();
  const auto two = HfCheckpoint::open(folder.path());
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->tensors().size(), 2u);
  EXPECT_EQ(two->config()["architectures"][0], "LlamaForCausalLM");
  const auto b = two->find("model.b");
  ASSERT_NE(b.tensor, nullptr);
  EXPECT_EQ(b.file->bytes(*b.tensor).size(), 16u);
}

// CASES: formats-135
TEST(HfCheckpoint, a_stray_safetensors_file_is_no_part_of_the_model) {
  const TempFolder folder = sharded();
  folder.write("consolidated.safetensors", one_tensor("model.stray"));
  folder.write("model.safetensors", one_tensor("model.a"));
  folder.write("adapter_model.safetensors", "not even a safetensors file");
  const auto opened = HfCheckpoint::open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), 2u);
  EXPECT_EQ(opened->find("model.a").file->file().path().filename(), "model-00001-of-00002.safetensors");
}

// CASES: formats-133
TEST(HfCheckpoint, a_shard_cut_short_is_refused_with_file_and_both_sizes) {
  const TempFolder folder = sharded();
  const std::string whole = one_tensor("model.b");
  folder.write("model-00002-of-00002.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(refusal(folder), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_THAT(refusal(folder),
              HasSubstr(fmt::format("ends at byte {}, the file has {}", whole.size(), whole.size() - 1)));
}

TEST(HfCheckpoint, says_what_an_incomplete_download_lacks) {
  const TempFolder folder = sharded();
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(folder), HasSubstr("'model-00002-of-00002.safetensors' is missing"));
  folder.write("model-00002-of-00002.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n");
  EXPECT_THAT(refusal(folder), HasSubstr("Git LFS pointer"));
  folder.write("model-00002-of-00002.safetensors", one_tensor("model.c"));
  EXPECT_THAT(refusal(folder), HasSubstr("'model.b' is in 'model-00002-of-00002.safetensors', which does not hold it"));
  folder.write("model-00002-of-00002.safetensors", one_tensor("model.a"));
  EXPECT_THAT(refusal(folder), HasSubstr("in another file"));
  TempFolder empty;
  EXPECT_THAT(refusal(empty), HasSubstr("no config.json"));
  empty.write("config.json", "{}");
  EXPECT_THAT(refusal(empty), HasSubstr("neither model.safetensors nor"));
  empty.write("pytorch_model.bin", "x");
  EXPECT_THAT(refusal(empty), HasSubstr("pickled"));
  empty.write("config.json", "[1]");
  EXPECT_THAT(refusal(empty), HasSubstr("not an object"));
}

TEST(HfCheckpoint, the_index_cannot_lead_out_of_the_folder) {
  const TempFolder folder = sharded();
  for (const char* file : {"../x.safetensors", "/etc/passwd", "a\\\\b", "..", "", "c:x", "a\\u0000b"}) {
    folder.write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{{"model.a":"{}"}}}})", file));
    EXPECT_THAT(refusal(folder), HasSubstr("expected the name of a file beside the index")) << file;
  }
  folder.write("model.safetensors.index.json", R"({"weight_map":{"model.a":7}})");
  EXPECT_THAT(refusal(folder), HasSubstr("beside the index"));
  folder.write("model.safetensors.index.json", R"({"weight_map":[]})");
  EXPECT_THAT(refusal(folder), HasSubstr("no object 'weight_map'"));
}

TEST(HfCheckpoint, finds_a_text_tensor_behind_every_prefix) {
  for (const std::string prefix : {"model.language_model.", "language_model.model.", "model.", ""}) {
    TempFolder folder;
    folder.write("config.json", "{}");
    folder.write("model.safetensors", SafetensorsBytes()
                                          .add_f32(prefix + "embed_tokens.weight", {2, 2}, kValues)
                                          .add_f32("visual.embed_tokens.weight", {1, 4}, kValues)
                                          .bytes());
    const auto opened = HfCheckpoint::open(folder.path());
    ASSERT_TRUE(opened) << opened.error().message;
    const auto found = opened->find_text("embed_tokens.weight");
    ASSERT_NE(found.tensor, nullptr) << prefix;
    EXPECT_EQ(found.tensor->name, prefix + "embed_tokens.weight");
    EXPECT_EQ(opened->find_text("norm.weight").tensor, nullptr);
  }
  for (const std::string name : {"lm_head.weight", "language_model.lm_head.weight"}) {
    TempFolder folder;
    folder.write("config.json", "{}");
    folder.write("model.safetensors", one_tensor(name));
    EXPECT_EQ(HfCheckpoint::open(folder.path())->find_text("lm_head.weight").tensor->name, name);
  }
}

// CASES: platform/ui-158
TEST(HfCheckpoint, a_folder_may_have_any_name) {
  TempFolder folder;
  folder.write("modèle é 模型/config.json", "{}");
  folder.write("modèle é 模型/model.safetensors", one_tensor("model.a"));
  EXPECT_TRUE(HfCheckpoint::open(folder / "modèle é 模型"));
}

}  // namespace
}  // namespace onw
