// What only Gemma 4 has: folders of text, images and sound, tables of embeddings by layer, layers without a cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "store/model_folder.h"
#include "store/safetensors_bytes.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "tests/golden.h"
#include "tests/random_model.h"
#include "tests/run_ids.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Golden golden(const char* name) {
  auto read = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens" / name);
  EXPECT_TRUE(read) << read.error().message;
  return read ? std::move(*read) : Golden();
}

// As it is published: the text's config and tensors under names of their own, beside those of images and sound.
void write_published(const Golden& g, const TempFolder& folder, const std::function<bool(const std::string&)>& keep) {
  json text = json::parse(g.config);
  text.erase("architectures");
  const json config = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                       {"model_type", "gemma4"},
                       {"text_config", text},
                       {"vision_config", {{"model_type", "gemma4_vision"}, {"num_hidden_layers", 7}}},
                       {"audio_config", {{"model_type", "gemma4_audio"}}},
                       {"image_token_id", 90},
                       {"tie_word_embeddings", true}};
  SafetensorsBytes file;
  for (const TinyTensor& t : g.tensors)
    if (keep(t.name))
      file.add_f32("model.language_model." + t.name.substr(std::string_view("model.").size()), t.shape,
                   tiny_tensor(g, t));
  const std::vector<float> some(6, 1.0f);
  file.add_f32("model.vision_tower.patch_embedder.input_proj.weight", {2, 3}, some);
  file.add_f32("model.embed_vision.embedding_projection.weight", {2, 3}, some);
  file.add_f32("model.audio_tower.output_proj.weight", {2, 3}, some);
  file.add_f32("model.language_model.layers.4.self_attn.k_proj.weight", {2, 3}, some);  // of a layer without a cache
  folder.write("published/config.json", config.dump());
  folder.write("published/model.safetensors", file.bytes());
}

bool everything(const std::string&) { return true; }

TEST(Gemma4Folder, of_text_images_and_sound_gives_the_texts_logits_and_names_what_it_leaves_out) {
  const Golden g = golden("gemma4-odd.safetensors");
  const TempFolder folder;
  write_published(g, folder, everything);
  const auto done = convert(folder / "published", folder / "model", {.format = WeightFormat::f32});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(done->unused, UnorderedElementsAre("model.vision_tower.patch_embedder.input_proj.weight",
                                                 "model.embed_vision.embedding_projection.weight",
                                                 "model.audio_tower.output_proj.weight",
                                                 "model.language_model.layers.4.self_attn.k_proj.weight"));
  const auto target = load_executable(folder / "model", {.device = "reference", .threads = 2, .quantised = false});
  ASSERT_TRUE(target) << target.error().message;
  const auto logits = logits_in_segments(**target, g.ids, g.segments);
  ASSERT_TRUE(logits) << logits.error().message;
  EXPECT_LE(relative_error(*logits, g.logits), 1e-4);
}

TEST(Gemma4Folder, without_what_layers_have_to_say_of_a_token_is_refused_by_name) {
  const Golden g = golden("gemma4-odd.safetensors");
  for (const char* missing :
       {"embed_tokens_per_layer.weight", "per_layer_model_projection.weight", "per_layer_projection_norm.weight",
        "layers.3.per_layer_input_gate.weight", "layers.3.per_layer_projection.weight",
        "layers.3.post_per_layer_input_norm.weight", "layers.3.layer_scalar", "layers.3.self_attn.k_proj.weight"}) {
    const TempFolder folder;
    write_published(g, folder, [&](const std::string& name) { return !name.ends_with(missing); });
    const auto done = convert(folder / "published", folder / "model", {});
    ASSERT_FALSE(done) << missing;
    EXPECT_EQ(done.error().code, Code::missing_tensor) << missing;
    EXPECT_THAT(done.error().message, HasSubstr(missing));
  }
}

// Half of the parameters, of which a token needs a row: rows of 4 bits, never laid out anew.
TEST(Gemma4Folder, keeps_the_table_by_layer_in_rows_of_the_format_for_look_ups) {
  const Golden g = golden("gemma4-g64.safetensors");
  const TempFolder folder;
  write_published(g, folder, everything);
  for (const char* device : {"cpu", "npu"}) {
    const auto done = convert(folder / "published", folder / device, {.made_for = device});
    ASSERT_TRUE(done) << done.error().message;
    const auto model = ModelFolder::open(folder / device);
    ASSERT_TRUE(model) << model.error().message;
    const auto table = model->weight("embed_layers"), embedding = model->weight("embed");
    ASSERT_TRUE(table && embedding);
    EXPECT_EQ(table->format, WeightFormat::e4g32) << device;
    EXPECT_EQ(table->layout, Layout::rows) << device;
    EXPECT_EQ(table->inputs, 5 * 320);
    EXPECT_EQ(embedding->format, WeightFormat::q8c) << device;
  }
}

// Two layers of each kind, of which the last of each may read the cache of the first.
TEST(Gemma4, layers_that_read_anothers_cache_keep_none) {
  const auto state_bytes = [](int64_t shared) {
    json config = tiny_config("gemma4", 320);
    config["num_kv_shared_layers"] = shared;
    const RandomModel m = random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
    const auto target = make_cpu(m.program, *cpu::tiled_in_memory(m.program, m.weights),
                                 {.kv = KvFormat::int8, .threads = 1, .max_step_rows = 16});
    EXPECT_TRUE(target) << target.error().message;
    return (*target)->need(256, 1).state_bytes;
  };
  EXPECT_EQ(state_bytes(0), 2 * state_bytes(2));
}

}  // namespace
}  // namespace onw::testing
