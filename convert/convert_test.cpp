#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/test_models.h"
#include "quant/unpack.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using ::onw::testing::kTinyHidden;
using ::onw::testing::kTinyKvHeads;
using ::onw::testing::kTinyVocabulary;
using ::onw::testing::tiny_config;
using ::onw::testing::tiny_values;
using ::onw::testing::tiny_weights;
using ::onw::testing::write_tiny_folder;
using ::onw::testing::write_tiny_gguf;
using ::onw::testing::write_tiny_gguf_parts;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> values_of(const ModelFolder& model, std::string_view name) {
  const auto view = model.weight(name);
  if (!view) return {};
  std::vector<float> values(view->outputs * view->inputs);
  for (int64_t r = 0; r < view->outputs; ++r)
    dequantise_row(*view, r, std::span(values).subspan(r * view->inputs, view->inputs));
  return values;
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - b[i]));
  return worst;
}

ConvertOptions as(WeightFormat format, std::string made_for = "cpu") {
  return {.made_for = std::move(made_for), .format = format};
}

// Converts and opens; a failure is a test failure with its message.
Result<ModelFolder> converted(const fs::path& source, const fs::path& out, const ConvertOptions& options) {
  const auto summary = convert(source, out, options);
  if (!summary) return Failure(summary.error());
  return ModelFolder::open(out);
}

TEST(Convert, f32_keeps_every_value_of_a_folder_and_of_a_gguf) {
  TempFolder folder;
  for (const fs::path& source : {write_tiny_folder(folder, "hf"), write_tiny_gguf(folder, "m.gguf")})
    for (const std::string made_for : {"cpu", "npu"}) {
      const auto model =
          converted(source, folder / (source.filename().string() + made_for), as(WeightFormat::f32, made_for));
      ASSERT_TRUE(model) << model.error().message;
      for (const auto& w : tiny_weights(false))
        EXPECT_EQ(worst_difference(values_of(*model, w.ours), tiny_values(w)), 0) << w.ours;
    }
}

TEST(Convert, default_of_a_folder_is_4_bits_with_an_8_bit_head) {
  TempFolder folder;
  std::vector<TensorReport> reports;
  const auto summary = convert(write_tiny_folder(folder, "hf", /*head=*/true), folder / "m", {});
  ASSERT_TRUE(summary) << summary.error().message;
  const auto model = ModelFolder::open(folder / "m");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->weight("layers.0.attn.q")->format, WeightFormat::q4g64);    // 64 inputs
  EXPECT_EQ(model->weight("layers.0.mlp.down")->format, WeightFormat::q4g32);  // 96
  EXPECT_EQ(model->weight("head")->format, WeightFormat::q8c);
  EXPECT_EQ(model->weight("embed")->format, WeightFormat::e4g32);
  EXPECT_EQ(model->weight("embed")->layout, Layout::rows);
  EXPECT_EQ(model->weight("head")->layout, Layout::tiles);
  EXPECT_EQ(model->weight("norm")->format, WeightFormat::f32);
  ASSERT_EQ(summary->tensors.size(), 12u);
  for (const TensorReport& r : summary->tensors) {
    EXPECT_EQ(r.source_type, "F32");
    if (r.shape.size() == 2) EXPECT_GT(r.relative_rms, r.format == WeightFormat::q8c ? 0.001 : 0.02) << r.name;
    EXPECT_LT(r.relative_rms, 0.15) << r.name;
  }
  EXPECT_THAT(to_line(summary->tensors[2]), HasSubstr("layers.0.attn.q  F32 -> q4g64 tiles [64, 64]  error 0."));
}

TEST(Convert, a_tied_embedding_is_one_tensor_in_the_heads_format) {
  TempFolder folder;
  const auto model = converted(write_tiny_folder(folder, "hf"), folder / "m", {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->weight("embed")->format, WeightFormat::q8c);
  EXPECT_EQ(model->weight("embed")->layout, Layout::tiles);
  EXPECT_FALSE(model->weights().has("head"));
  EXPECT_EQ(model->config()["tie_word_embeddings"], true);  // the tensors say so, though the config did not
}

TEST(Convert, a_head_beside_a_tied_embedding_is_a_copy_and_left_out) {
  TempFolder folder;
  const auto summary =
      convert(write_tiny_folder(folder, "hf", true, R"(, "tie_word_embeddings": true)"), folder / "m", {});
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(summary->unused, ElementsAre("lm_head.weight"));
}

// CASES: numerics-065
TEST(Convert, a_head_that_should_be_there_and_is_not_is_named) {
  TempFolder folder;
  const auto summary =
      convert(write_tiny_folder(folder, "hf", false, R"(, "tie_word_embeddings": false)"), folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Code::missing_tensor);
  EXPECT_THAT(summary.error().message, HasSubstr("no lm_head.weight"));
}

TEST(Convert, codes_of_a_gguf_are_taken_over_and_q_and_k_rows_return_to_halves) {
  TempFolder folder;
  const auto summary = convert(write_tiny_gguf(folder, "m.gguf", 8), folder / "m", {});
  ASSERT_TRUE(summary) << summary.error().message;
  const auto model = ModelFolder::open(folder / "m");
  const float scale = half_to_float(float_to_half(0.25f / 127));
  for (const auto& w : tiny_weights(false)) {
    if (w.shape.size() == 1) continue;
    EXPECT_EQ(model->weight(w.ours)->format, WeightFormat::q8g32);
    std::vector<float> expected = tiny_values(w);
    for (float& v : expected) v = static_cast<float>(std::lround(v / scale)) * scale;
    EXPECT_EQ(worst_difference(values_of(*model, w.ours), expected), 0) << w.ours;
  }
  for (const TensorReport& r : summary->tensors) EXPECT_EQ(r.relative_rms, 0) << r.name;
  EXPECT_EQ(model->engine().stop_ids, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(model->engine().runs_on, (std::vector<std::string>{"cpu", "openvino:CPU"}));
}

TEST(Convert, a_gguf_in_parts_is_one_model_whichever_part_is_named) {
  TempFolder folder;
  const fs::path first = write_tiny_gguf_parts(folder);
  const auto model = converted(first, folder / "m", {});
  ASSERT_TRUE(model) << model.error().message;
  for (const auto& w : tiny_weights(false))
    EXPECT_EQ(worst_difference(values_of(*model, w.ours), tiny_values(w)), 0) << w.ours;
  EXPECT_TRUE(converted(folder / "t-00002-of-00002.gguf", folder / "m2", {}));
  fs::rename(folder / "t-00002-of-00002.gguf", folder / "other.gguf");
  EXPECT_THAT(convert(first, folder / "m3", {}).error().message, HasSubstr("part 2 of 2 is missing"));
  EXPECT_THAT(convert(folder / "other.gguf", folder / "m3", {}).error().message, HasSubstr("published names"));
  fs::copy(first, folder / "t-00002-of-00002.gguf");
  EXPECT_THAT(convert(first, folder / "m3", {}).error().message, HasSubstr("says that it is part 1 of 2"));
}

TEST(Convert, for_an_npu_rows_and_only_formats_that_it_takes) {
  TempFolder folder;
  const auto summary = convert(write_tiny_gguf(folder, "m.gguf", 8), folder / "m", {.made_for = "npu"});
  ASSERT_TRUE(summary) << summary.error().message;
  const auto model = ModelFolder::open(folder / "m");
  EXPECT_EQ(model->weight("layers.0.attn.q")->format, WeightFormat::q8g64);
  EXPECT_EQ(model->weight("layers.0.attn.q")->layout, Layout::rows);
  EXPECT_THAT(to_line(summary->tensors[2]), HasSubstr("(q8g32 does not run on the NPU)"));
}

TEST(Convert, for_an_npu_a_width_that_leaves_groups_of_32_gets_one_scale_per_output) {
  const FormatRequest npu{"npu", std::nullopt, false};
  const FormatChoice narrow = choose_format({.name = "w", .shape = {8, 96}}, BlockType::bf16, false, npu);
  EXPECT_EQ(narrow.format, WeightFormat::q8c);
  EXPECT_THAT(narrow.why, HasSubstr("q4g32 does not run on the NPU"));
  const FormatChoice asked =
      choose_format({.name = "w", .shape = {8, 256}}, BlockType::bf16, false, {"npu", WeightFormat::q4g32m, false});
  EXPECT_EQ(asked.format, WeightFormat::q4g128);
  EXPECT_THAT(asked.why, HasSubstr("q4g32m does not run on the NPU"));
}

TEST(Convert, a_tensor_that_is_missing_is_named_as_it_was_looked_for) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  SafetensorsBytes file;
  for (const auto& w : tiny_weights(false))
    if (w.ours != "layers.0.attn.o") file.add_f32(w.hf, w.shape, tiny_values(w));
  folder.write("hf/model.safetensors", file.bytes());
  const auto summary = convert(folder / "hf", folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Code::missing_tensor);
  EXPECT_THAT(summary.error().message, HasSubstr("looked for layers.0.self_attn.o_proj.weight"));
}

TEST(Convert, weights_of_a_group_lie_side_by_side) {
  TempFolder folder;
  const auto model = converted(write_tiny_folder(folder, "hf"), folder / "m", {});
  ASSERT_TRUE(model);
  const std::string qkv[] = {"layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"};
  const std::string gate_up[] = {"layers.0.mlp.gate", "layers.0.mlp.up"};
  EXPECT_TRUE(model->weights().adjacent(qkv));
  EXPECT_TRUE(model->weights().adjacent(gate_up));
}

TEST(Convert, stops_where_gemma_4_ends_its_turn_or_waits_for_a_tool) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  folder.write("hf/chat_template.jinja", "{{ '<|turn>model<turn|>' }}{{ '<|tool_response>' }}");
  folder.write("hf/tokenizer.json",
               R"({"added_tokens": [{"id": 10, "content": "<|turn>"}, {"id": 11, "content": "<turn|>"},)"
               R"( {"id": 12, "content": "<|tool_response>"}, {"id": 13, "content": "<tool_response|>"}]})");
  const auto model = converted(folder / "hf", folder / "m", {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->engine().stop_ids, (std::vector<int64_t>{7, 11, 12}));
}

// tokenizer/template-040
TEST(Convert, stops_at_every_token_that_some_file_names) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  folder.write("hf/generation_config.json", R"({"eos_token_id": [3, 4], "temperature": 0.7, "top_k": 20})");
  folder.write("hf/tokenizer_config.json",
               R"({"eos_token": {"content": "<end>"}, "chat_template": "{{ '<|im_end|>' }}"})");
  folder.write("hf/tokenizer.json", R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 11, "content": "<end>"},)"
                                    R"( {"id": 12, "content": "<|im_end|>"}, {"id": 13, "content": "<|eot_id|>"}]})");
  const auto model = converted(folder / "hf", folder / "m", {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->engine().stop_ids, (std::vector<int64_t>{3, 4, 7, 11, 12}));
  EXPECT_EQ(model->engine().generation.temperature, 0.7);
  EXPECT_EQ(model->engine().generation.top_k, 20);
  EXPECT_TRUE(fs::exists(folder / "m/tokenizer.json"));
}

TEST(Convert, remembers_where_the_model_came_from) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  folder.write("hf/README.md", "---\ntags: [x]\nlicense: \"apache-2.0\"\n---\n# A model\n");
  ConvertOptions options;
  options.provenance.source = "org/model";
  options.provenance.revision = "0123abc";
  options.provenance.command = "onw convert org/model";
  const auto model = converted(folder / "hf", folder / "m", options);
  ASSERT_TRUE(model);
  const Provenance& p = model->engine().provenance;
  EXPECT_EQ(p.source, "org/model");
  EXPECT_EQ(p.revision, "0123abc");
  EXPECT_EQ(p.licence, "apache-2.0");
  EXPECT_THAT(p.date, ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
}

TEST(Convert, a_published_weight_that_is_not_finite_is_named) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  SafetensorsBytes file;
  for (const auto& w : tiny_weights(false)) {
    auto values = tiny_values(w);
    if (w.ours == "layers.0.attn.v") values[kTinyHidden * 3 + 5] = NAN;
    file.add_f32(w.hf, w.shape, values);
  }
  folder.write("hf/model.safetensors", file.bytes());
  const auto summary = convert(folder / "hf", folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Code::numerics);
  EXPECT_THAT(summary.error().message, HasSubstr("'model.layers.0.self_attn.v_proj.weight' holds nan in row 3"));
  for (const char* litter : {"m", "m.partial", "m.lock"}) EXPECT_FALSE(fs::exists(folder / litter)) << litter;
}

TEST(Convert, a_text_side_that_is_refused_ends_it_before_anything_is_written) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  folder.write("hf/tokenizer.json", "{}");
  const fs::path file = write_tiny_gguf(folder, "m.gguf");
  std::vector<fs::path> asked;
  int calls = 0;
  ConvertOptions options;
  options.check_text = [&](const fs::path& text, int64_t vocabulary) -> Result<void> {
    EXPECT_EQ(vocabulary, kTinyVocabulary);
    EXPECT_TRUE(fs::exists(text / "config.json"));
    asked.push_back(text);
    return error(Code::bad_format, "no such text");
  };
  for (const fs::path& source : {folder / "hf", file}) {
    const auto summary = convert(source, folder / "m", options, [&](const ConvertProgress&) { return ++calls > 0; });
    ASSERT_FALSE(summary);
    EXPECT_THAT(summary.error().message, HasSubstr("no such text"));
    EXPECT_EQ(calls, 0);
    for (const char* litter : {"m", "m.partial", "m.lock"}) EXPECT_FALSE(fs::exists(folder / litter)) << litter;
    EXPECT_FALSE(check_published(source, options.check_text));
    options.replace = true;
  }
  EXPECT_EQ(asked[0], folder / "hf");
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_FALSE(fs::exists(asked[3])) << "what was made for the check alone is gone";
}

TEST(Convert, stop_ids_that_all_lie_beyond_the_vocabulary_are_refused) {
  TempFolder folder;
  std::string config = tiny_config();
  write_tiny_folder(folder, "hf");
  folder.write("hf/config.json", config.replace(config.find("\"eos_token_id\": 7"), 17, "\"eos_token_id\": 40"));
  const auto summary = convert(folder / "hf", folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_THAT(summary.error().message,
              HasSubstr("every token that ends an answer (40) lies beyond the vocabulary of 40"));
  folder.write("hf/generation_config.json", R"({"eos_token_id": [40, 3]})");
  const auto model = converted(folder / "hf", folder / "m", {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->engine().stop_ids, std::vector<int64_t>{3});
}

TEST(Convert, values_of_a_wrong_type_are_named_with_file_and_key) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"generation_config.json", R"({"temperature": "hot"})",
       "generation_config.json: 'temperature' is \"hot\", expected a number"},
      {"generation_config.json", R"({"top_k": 2.5})", "'top_k' is 2.5, expected a whole number"},
      {"generation_config.json", R"({"top_k": -1})", "'top_k' is -1, expected 0 (off)"},
      {"generation_config.json", R"({"eos_token_id": "x"})", "generation_config.json: 'eos_token_id' is \"x\""},
      {"generation_config.json", R"({"eos_token_id": [1, "x"]})", "generation_config.json: 'eos_token_id'"},
      {"generation_config.json", "[1]", "generation_config.json: not a JSON object"},
      {"generation_config.json", "{", "generation_config.json: not valid JSON"},
      {"tokenizer_config.json", R"({"eos_token": 3})", "tokenizer_config.json: 'eos_token' is 3"}};
  for (const auto& [file, text, says] : cases) {
    TempFolder folder;
    write_tiny_folder(folder, "hf");
    folder.write(fmt::format("hf/{}", file), text);
    if (std::string_view(file).starts_with("tok")) folder.write("hf/tokenizer.json", "{}");
    const auto summary = convert(folder / "hf", folder / "m", {});
    ASSERT_FALSE(summary) << text;
    EXPECT_THAT(summary.error().message, HasSubstr(says));
    EXPECT_FALSE(fs::exists(folder / "m.partial"));
  }
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  folder.write("hf/generation_config.json", R"({"eos_token_id": null, "temperature": null, "top_k": 20.0})");
  EXPECT_TRUE(convert(folder / "hf", folder / "m", {}));
}

TEST(Convert, rows_that_are_no_heads_are_refused) {
  TempFolder folder;
  const WeightDecl w{.name = "w", .shape = {8, 2}, .head_dim = 3, .gguf = {{"output_norm.weight"}, Fold::rope_unpair}};
  GgufBytes b = testing::tiny_metadata(1);
  b.tensor("output_norm.weight", {2, 8}, 0, 0).pad().data(std::string(64, '\0'));
  const auto source = open_source(folder.write("m.gguf", b.bytes()));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_THAT(tensor_of(**source, w).error().message, HasSubstr("no heads of an even size (3)"));
}

TEST(Convert, a_tensor_of_another_shape_is_refused_with_both) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  std::string config = tiny_config();
  folder.write("hf/config.json",
               config.replace(config.find("\"intermediate_size\": 96"), 23, "\"intermediate_size\": 80"));
  const auto summary = convert(folder / "hf", folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_THAT(summary.error().message, HasSubstr("is [96, 64], config.json makes it [80, 64]"));
}

TEST(Convert, rows_that_nobody_would_take_are_refused) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  std::string config = tiny_config();
  const std::string heads = fmt::format("\"num_key_value_heads\": {}", kTinyKvHeads);
  folder.write("hf/config.json", config.replace(config.find(heads), heads.size(), "\"num_key_value_heads\": 1"));
  static_assert(kTinyKvHeads > 1);
  const auto summary = convert(folder / "hf", folder / "m", {});
  ASSERT_FALSE(summary);
  EXPECT_THAT(summary.error().message, HasSubstr("config.json makes 'layers.0.attn.k'"));
}

TEST(Convert, stopped_and_started_again_it_ends_the_same) {
  TempFolder folder;
  const fs::path source = write_tiny_folder(folder, "hf");
  int calls = 0;
  const auto stopped = convert(source, folder / "m", {}, [&](const ConvertProgress&) { return ++calls < 9; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  EXPECT_FALSE(fs::exists(folder / "m"));
  int64_t last = 0;
  const auto summary = convert(source, folder / "m", {}, [&](const ConvertProgress& p) {
    EXPECT_GE(p.bytes_done, last);
    EXPECT_LE(p.bytes_done, p.bytes_total);
    last = p.bytes_done;
    return true;
  });
  ASSERT_TRUE(summary) << summary.error().message;
  ASSERT_TRUE(convert(source, folder / "whole", {}));
  EXPECT_EQ(ModelFolder::open(folder / "m")->weights().digest(),
            ModelFolder::open(folder / "whole")->weights().digest());
}

TEST(Convert, says_what_it_cannot_read) {
  TempFolder folder;
  EXPECT_EQ(convert(folder / "absent", folder / "m", {}).error().code, Code::not_found);
  EXPECT_EQ(convert(folder.write("a.bin", "x"), folder / "m", {}).error().code, Code::unsupported);
  folder.write("other/config.json", R"({"architectures": ["LlamaForCausalLN"]})");
  folder.write("other/model.safetensors", SafetensorsBytes().bytes());
  EXPECT_THAT(convert(folder / "other", folder / "m", {}).error().message, HasSubstr("LlamaForCausalLM"));
  write_tiny_folder(folder, "hf");
  SafetensorsBytes integers;
  for (const auto& w : tiny_weights(false)) integers.add(w.hf, "I8", w.shape, std::string(tiny_values(w).size(), 'x'));
  folder.write("hf/model.safetensors", integers.bytes());
  EXPECT_THAT(convert(folder / "hf", folder / "m", {}).error().message, HasSubstr("'model.embed_tokens.weight' is I8"));
  write_tiny_folder(folder, "awq", false, R"(, "quantization_config": {"quant_method": "awq"})");
  EXPECT_THAT(convert(folder / "awq", folder / "m", {}).error().message, HasSubstr("quantised already (awq)"));
}

// CASES: platform/ui-158
TEST(Convert, folders_may_have_any_name) {
  TempFolder folder;
  const auto model = converted(write_tiny_folder(folder, "modèle é 模型"), folder / "aus gabe/モデル ü", {});
  EXPECT_TRUE(model) << model.error().message;
}

TEST(ChooseFormat, option_names_are_those_of_the_table) {
  EXPECT_EQ(parse_format_option("q4sg128"), WeightFormat::q4sg128);
  EXPECT_THAT(parse_format_option("q4").error().message, HasSubstr("q4g128"));
  EXPECT_EQ(parse_format_option("u2g128"), WeightFormat::u2g128);
  EXPECT_THAT(parse_format_option("e4g32").error().message, HasSubstr("not possible"));
  EXPECT_EQ(parse_device_class("gpu").error().code, Code::usage);
}

TEST(ChooseFormat, a_width_that_no_group_divides_stays_f16_and_says_so) {
  const FormatChoice choice = choose_format({.name = "w", .shape = {8, 48}}, BlockType::bf16, false, {});
  EXPECT_EQ(choice.format, WeightFormat::f16);
  EXPECT_THAT(choice.why, HasSubstr("divides 48 inputs"));
}

TEST(ChooseFormat, each_gguf_type_has_its_format) {
  const WeightDecl w{.name = "w", .shape = {16, 256}};
  const auto format = [&](BlockType type) { return choose_format(w, type, true, {}).format; };
  using enum WeightFormat;
  EXPECT_EQ(format(BlockType::q4_0), q4g32);
  EXPECT_EQ(format(BlockType::q4_1), q4g32m);
  EXPECT_EQ(format(BlockType::q5_0), q8g32);
  EXPECT_EQ(format(BlockType::q5_1), q5g32m);
  EXPECT_EQ(format(BlockType::q8_0), q8g32);
  EXPECT_EQ(format(BlockType::iq4_nl), iq4g32);
  EXPECT_EQ(format(BlockType::q4_k), q4g32m);
  EXPECT_EQ(format(BlockType::q5_k), q5g32m);
  EXPECT_EQ(format(BlockType::q6_k), q8g32);
  EXPECT_EQ(format(BlockType::q3_k), q4g32);
  EXPECT_EQ(format(BlockType::q2_k), q4g32m);
  EXPECT_EQ(format(BlockType::f16), f16);
  EXPECT_EQ(format(BlockType::bf16), bf16);
  EXPECT_EQ(format(BlockType::f32), f32);
}

}  // namespace
}  // namespace onw
