// Models in a rotated basis: a published model whose matrices were rotated as their checkpoints are, with the rotation
// left to the graph, gives the publisher's logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "kernels/hadamard/hadamard.h"
#include "models/registry.h"
#include "store/model_folder.h"
#include "store/safetensors.h"
#include "store/safetensors_bytes.h"
#include "targets/reference/reference.h"
#include "tests/golden.h"
#include "tests/run_ids.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 64;

Golden golden() {
  auto read = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens" / "qwen3_5-g64.safetensors");
  EXPECT_TRUE(read) << read.error().message;
  return read ? std::move(*read) : Golden();
}

std::vector<float> signs_for(int64_t n) {
  std::vector<float> signs(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) signs[static_cast<size_t>(i)] = i % 3 == 0 || i % 7 == 2 ? -1.0f : 1.0f;
  return signs;
}

bool is_rotated_matrix(const TinyTensor& t) {
  const std::string_view name = t.name;
  return t.shape.size() == 2 && name.ends_with(".weight") && !name.ends_with("in_proj_a.weight") &&
         !name.ends_with("in_proj_b.weight");
}

// Norms that are published as an offset from 1.
bool is_offset_norm(std::string_view name) {
  return name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight");
}

// The golden's model as such a folder: config, rotated matrices, signs, norms with the 1 in them, MLX's kernels.
void write_rotated(const Golden& g, const TempFolder& folder, const std::function<void(json&)>& change = {}) {
  json config = json::parse(g.config);
  config["model_type"] = "prism_hadamard_qwen35";
  config.erase("architectures");
  config.update({{"schema_version", 2}, {"base_model_type", "qwen3_5"}, {"gdn_activation_layout", "grouped"}});
  SafetensorsBytes file;
  for (const TinyTensor& t : g.tensors) {
    std::vector<float> values = tiny_tensor(g, t);
    const std::string name = "language_model." + t.name;
    std::vector<int64_t> shape = t.shape;
    if (t.name.ends_with("conv1d.weight")) std::swap(shape[1], shape[2]);
    if (is_offset_norm(t.name))
      for (float& v : values) v += 1;
    if (is_rotated_matrix(t)) {
      const std::string path = t.name.substr(0, t.name.size() - std::string(".weight").size());
      const auto signs = signs_for(t.shape[1]);
      for (int64_t r = 0; r < t.shape[0]; ++r) {
        float* row = values.data() + r * t.shape[1];
        hadamard({signs.data(), t.shape[1], kBlock}, row, row, Isa::generic);
      }
      config["modules"].push_back(
          {{"path", path}, {"block", kBlock}, {"embedding", path.ends_with("embed_tokens")}, {"dtype", "float16"}});
      file.add_f32("language_model." + path + ".signs", {t.shape[1]}, signs);
    }
    file.add_f32(name, shape, values);
  }
  if (change) change(config);
  folder.write("published/config.json", config.dump());
  folder.write("published/model.safetensors", file.bytes());
}

Result<ConvertSummary> converted(const TempFolder& folder) {
  return convert(folder / "published", folder / "model", {.format = WeightFormat::f32});
}

double distance_of(const TempFolder& folder, const Golden& g) {
  auto model = ModelFolder::open(folder / "model");
  EXPECT_TRUE(model) << model.error().message;
  auto program = build_program(model->config());
  EXPECT_TRUE(program) << program.error().message;
  const auto owner = std::make_shared<const ModelFolder>(std::move(*model));
  const WeightSet weights{.find = [owner](std::string_view name) { return owner->weight(name); }, .owner = owner};
  auto target = make_reference(std::move(*program), weights, {.threads = 2});
  EXPECT_TRUE(target) << target.error().message;
  const auto logits = logits_in_segments(**target, g.ids, g.segments);
  EXPECT_TRUE(logits) << logits.error().message;
  return logits ? relative_error(*logits, g.logits) : -1;
}

TEST(Rotated, models_give_the_logits_of_transformers) {
  const Golden g = golden();
  const TempFolder folder;
  write_rotated(g, folder);
  const auto done = converted(folder);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(done->unused, ::testing::IsEmpty());
  EXPECT_LE(distance_of(folder, g), 1e-4);
}

// What would be fluent nonsense in a large model: one product whose input is not turned.
TEST(Rotated, models_are_far_from_it_where_one_module_is_not_turned) {
  const Golden g = golden();
  const TempFolder folder;
  write_rotated(g, folder, [](json& config) { config["modules"].erase(3); });
  const auto done = converted(folder);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_GT(distance_of(folder, g), 0.01);
}

TEST(Rotated, models_are_refused_where_something_else_would_be_computed) {
  const Golden g = golden();
  const std::tuple<const char*, std::function<void(json&)>, const char*> wrong[] = {
      {"another block", [](json& c) { c["modules"][1]["block"] = 48; }, "powers of two from 2 to 8192"},
      {"a wide block", [](json& c) { c["modules"][1]["block"] = 16384; }, "powers of two from 2 to 8192"},
      {"a block wider than the input", [](json& c) { c["modules"][1]["block"] = 512; }, "blocks of 512"},
      {"a list that is none", [](json& c) { c["modules"] = "all"; }, "no list of modules"},
      {"no list", [](json& c) { c.erase("modules"); }, "no list 'modules'"},
      {"a module of another model", [](json& c) { c["modules"][1]["path"] = "model.layers.0.x_proj"; }, "no matrix"},
      {"a module twice", [](json& c) { c["modules"].push_back(c["modules"][1]); }, "twice"},
      {"a module without a path", [](json& c) { c["modules"][1] = 5; }, "without a 'path'"},
      {"an embedding that is none", [](json& c) { c["modules"][1]["embedding"] = true; }, "as an embedding"},
      {"another schema", [](json& c) { c["schema_version"] = 3; }, "schema_version"},
      {"another order of heads", [](json& c) { c["gdn_activation_layout"] = "tiled"; }, "grouped"},
      {"another base", [](json& c) { c["base_model_type"] = "llama"; }, "qwen3_5"},
      {"a rotation without its list",
       [](json& c) { c["model_type"] = "qwen3_5", c.erase("modules"), c["hadamard"] = 1; }, "no list 'modules'"}};
  for (const auto& [what, change, said] : wrong) {
    const TempFolder folder;
    write_rotated(g, folder, change);
    const auto done = converted(folder);
    ASSERT_FALSE(done) << what;
    EXPECT_THAT(done.error().message, HasSubstr(said)) << what;
    EXPECT_THAT(done.error().message, HasSubstr("config.json")) << what;
  }
}

TEST(Rotated, models_with_signs_that_are_none_are_refused) {
  const Golden g = golden();
  const TempFolder folder;
  write_rotated(g, folder);
  std::fstream file(folder / "published/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  {
    const auto published = SafetensorsFile::open(folder / "published/model.safetensors");
    ASSERT_TRUE(published);
    const SafeTensor* signs = published->find("language_model.model.layers.0.mlp.up_proj.signs");
    ASSERT_NE(signs, nullptr);
    file.seekp(signs->begin + 8);
  }
  const float half = 0.5f;
  file.write(reinterpret_cast<const char*>(&half), sizeof half);
  file.close();
  const auto done = converted(folder);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("0.5 at 2, expected 1 or -1"));
}

}  // namespace
}  // namespace onw::testing
