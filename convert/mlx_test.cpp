// Checkpoints that MLX quantised, and GGUF files with ternary blocks, through the whole conversion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "convert/convert.h"
#include "convert/gguf.h"
#include "convert/test_models.h"
#include "quant/unpack.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kHidden = 128, kVocabulary = 32, kInner = 256;

struct Matrix {
  std::string hf, ours;
  int64_t rows, inputs;
};

const std::vector<Matrix>& matrices() {
  static const std::vector<Matrix> all = {{"model.embed_tokens", "embed", kVocabulary, kHidden},
                                          {"model.layers.0.self_attn.q_proj", "layers.0.attn.q", 64, kHidden},
                                          {"model.layers.0.self_attn.k_proj", "layers.0.attn.k", 32, kHidden},
                                          {"model.layers.0.self_attn.v_proj", "layers.0.attn.v", 32, kHidden},
                                          {"model.layers.0.self_attn.o_proj", "layers.0.attn.o", kHidden, 64},
                                          {"model.layers.0.mlp.gate_proj", "layers.0.mlp.gate", kInner, kHidden},
                                          {"model.layers.0.mlp.up_proj", "layers.0.mlp.up", kInner, kHidden},
                                          {"model.layers.0.mlp.down_proj", "layers.0.mlp.down", kHidden, kInner}};
  return all;
}

// What a test changes in the checkpoint.
struct Change {
  int bits = 2;
  int64_t group = 128;
  std::string quantization;  // of config.json; empty: as bits and group say
  std::string drop;          // a tensor that is left out
  std::string wider;         // a tensor of scales with one group too many
  bool nan = false;          // the first scale of every matrix
};

std::string bytes_of(const std::vector<uint16_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 2};
}

uint32_t code_of(int64_t i, int bits) { return static_cast<uint32_t>(i * 7 + i / 5) % (bits == 2 ? 3 : 1u << bits); }

// o_proj has 64 inputs, so it stays F16, as MLX leaves what its groups do not divide.
fs::path write_mlx(const TempFolder& folder, const Change& change) {
  const std::string said = change.quantization.empty()
                               ? fmt::format(R"({{"bits": {}, "group_size": {}}})", change.bits, change.group)
                               : change.quantization;
  folder.write(
      "mlx/config.json",
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": {}, "intermediate_size": {},)"
                  R"( "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,)"
                  R"( "vocab_size": {}, "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "eos_token_id": 7,)"
                  R"( "tie_word_embeddings": true, "quantization": {}, "quantization_config": {}}})",
                  kHidden, kInner, kVocabulary, said, said));
  SafetensorsBytes file;
  const auto add = [&](const std::string& name, std::string_view dtype, const std::vector<int64_t>& shape,
                       const std::string& data) {
    if (name != change.drop) file.add(name, dtype, shape, data);
  };
  for (const std::string name :
       {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"})
    add(name + ".weight", "F16", {kHidden}, bytes_of(std::vector<uint16_t>(kHidden, 0x3c00)));
  for (const Matrix& m : matrices()) {
    if (m.inputs % change.group != 0) {
      add(m.hf + ".weight", "F16", {m.rows, m.inputs}, bytes_of(std::vector<uint16_t>(m.rows * m.inputs, 0x2c00)));
      continue;
    }
    const int per_word = 32 / change.bits;
    std::vector<uint32_t> words(m.rows * m.inputs / per_word);
    for (int64_t i = 0; i < m.rows * m.inputs; ++i)
      words[i / per_word] |= code_of(i, change.bits) << (i % per_word * change.bits);
    const int64_t groups = m.inputs / change.group + (m.hf + ".scales" == change.wider ? 1 : 0);
    std::vector<uint16_t> scales, biases;
    for (int64_t i = 0; i < m.rows * groups; ++i) {
      scales.push_back(float_to_half(0.01f * static_cast<float>(i % 9 + 1)));
      biases.push_back(scales.back() ^ 0x8000);
    }
    if (change.nan) scales[0] = 0x7e00;
    add(m.hf + ".weight", "U32", {m.rows, m.inputs / per_word},
        {reinterpret_cast<const char*>(words.data()), words.size() * 4});
    add(m.hf + ".scales", "F16", {m.rows, groups}, bytes_of(scales));
    add(m.hf + ".biases", "F16", {m.rows, groups}, bytes_of(biases));
  }
  folder.write("mlx/model.safetensors", file.bytes());
  return folder / "mlx";
}

// Element i of a quantised matrix.
float value_of(const Matrix& m, int64_t i, const Change& change) {
  const int64_t group = i / m.inputs * (m.inputs / change.group) + i % m.inputs / change.group;
  const float scale = half_to_float(float_to_half(0.01f * static_cast<float>(group % 9 + 1)));
  return scale * static_cast<float>(code_of(i, change.bits)) - scale;
}

void expect_values(const ModelFolder& model, const Matrix& m, const Change& change, double tolerance) {
  const auto view = model.weight(m.ours);
  ASSERT_TRUE(view);
  std::vector<float> row(m.inputs);
  for (int64_t r = 0; r < m.rows; ++r) {
    dequantise_row(*view, r, row);
    for (int64_t k = 0; k < m.inputs; ++k)
      ASSERT_NEAR(row[k], value_of(m, r * m.inputs + k, change), tolerance) << m.ours << " " << r << " " << k;
  }
}

TEST(Mlx, codes_are_taken_over_exactly_where_a_format_holds_them) {
  const std::tuple<int, int64_t, WeightFormat> cases[] = {{1, 128, WeightFormat::u2g128},
                                                          {2, 128, WeightFormat::u2g128},
                                                          {2, 64, WeightFormat::q4g32m},
                                                          {4, 64, WeightFormat::q4g32m},
                                                          {4, 128, WeightFormat::q4g32m}};
  for (const auto& [bits, group, format] : cases) {
    const TempFolder folder;
    const Change change{.bits = bits, .group = group};
    const auto done = convert(write_mlx(folder, change), folder / "m", {});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_THAT(done->unused, ::testing::IsEmpty());
    const auto model = ModelFolder::open(folder / "m");
    ASSERT_TRUE(model) << model.error().message;
    for (const Matrix& m : matrices()) {
      if (m.inputs % group != 0) continue;
      EXPECT_EQ(model->weight(m.ours)->format, format) << m.ours;
      expect_values(*model, m, change, 0);
    }
    for (const TensorReport& r : done->tensors)
      if (r.name == "layers.0.mlp.up") EXPECT_THAT(to_line(r), HasSubstr("exact"));
  }
}

// Ternary codes are INT4 codes too; eight bits have no format with a bias.
TEST(Mlx, codes_become_what_an_NPU_takes) {
  const TempFolder folder;
  const Change change;
  ASSERT_TRUE(convert(write_mlx(folder, change), folder / "m", {.made_for = "npu"}));
  const auto model = ModelFolder::open(folder / "m");
  ASSERT_TRUE(model);
  for (const Matrix& m : matrices()) {
    if (m.ours == "embed" || m.inputs % 128 != 0) continue;
    EXPECT_EQ(model->weight(m.ours)->format, WeightFormat::q4g128) << m.ours;
    expect_values(*model, m, change, 0);
  }
}

TEST(Mlx, eight_bits_go_to_the_nearest) {
  const TempFolder folder;
  const Change change{.bits = 8, .group = 64};
  const auto done = convert(write_mlx(folder, change), folder / "m", {});
  ASSERT_TRUE(done) << done.error().message;
  for (const TensorReport& r : done->tensors)
    if (r.name == "layers.0.mlp.up") {
      EXPECT_EQ(r.format, WeightFormat::q8g32);
      EXPECT_LT(r.relative_rms, 0.01);
      EXPECT_GT(r.relative_rms, 0);
    }
}

TEST(Mlx, single_modules_may_have_another_width) {
  const TempFolder folder;
  Change change{.bits = 2, .group = 128};
  change.quantization = R"({"bits": 8, "group_size": 32, "mode": "affine")";
  for (const Matrix& m : matrices())
    change.quantization += fmt::format(R"(, "{}": {{"bits": 2, "group_size": 128}})", m.hf);
  change.quantization += "}";
  ASSERT_TRUE(convert(write_mlx(folder, change), folder / "m", {}));
  expect_values(*ModelFolder::open(folder / "m"), matrices()[1], change, 0);
}

TEST(Mlx, checkpoints_that_cannot_be_read_say_why_and_what_to_do) {
  const std::tuple<Change, const char*, const char*> wrong[] = {
      {{.drop = "model.layers.0.mlp.up_proj.scales"}, "no 'model.layers.0.mlp.up_proj.scales'", "download"},
      {{.drop = "model.layers.0.mlp.up_proj.biases"}, "no 'model.layers.0.mlp.up_proj.biases'", "download"},
      {{.wider = "model.layers.0.mlp.up_proj.scales"}, "expected F16, BF16 or F32 [256, 1]", "download"},
      {{.quantization = R"({"bits": 3, "group_size": 128})"}, "3 bits in groups of 128", "Take a checkpoint of 2, 4"},
      {{.quantization = R"({"bits": 2, "group_size": 96})"}, "no multiple of the group 96", "download"},
      {{.quantization = R"({"bits": 2, "group_size": 20})"}, "groups of 20", "Take a checkpoint of 2, 4"},
      {{.quantization = R"({"bits": 4, "group_size": 128})"}, "64 inputs of 4 bits", "download"},
      {{.quantization = R"({"bits": 0, "group_size": 128})"}, "neither its 'bits'", "Download"},
      {{.quantization = R"({"bits": 4, "group_size": 32, "mode": "mxfp4"})"}, "'mxfp4', 'affine' is read", "Take"},
      {{.nan = true}, "row 0", "download"}};
  for (const auto& [change, said, remedy] : wrong) {
    const TempFolder folder;
    const auto done = convert(write_mlx(folder, change), folder / "m", {});
    ASSERT_FALSE(done) << said;
    EXPECT_THAT(done.error().message, HasSubstr(said));
    EXPECT_THAT(done.error().message, HasSubstr(remedy)) << said;
    EXPECT_FALSE(fs::exists(folder / "m"));
  }
}

// The number 42 means groups of 64, in files from before groups of 128; how the tensors lie tells.
std::string q2_0_file(int64_t group, size_t missing = 0) {
  GgufBytes b;
  b.header(3, 0);
  const int64_t rows = 6, inputs = 256, bytes = rows * inputs / group * (2 + group / 4);
  const size_t step = (static_cast<size_t>(bytes) + 31) / 32 * 32;
  for (int i = 0; i < 2; ++i)
    b.tensor(fmt::format("t{}", i), {static_cast<uint64_t>(inputs), static_cast<uint64_t>(rows)}, 42, i * step);
  b.tensor("norm", {8}, 0, 2 * step);
  std::string data(2 * step + 32, 'x');
  data.resize(data.size() - missing);
  return b.pad().data(data).bytes();
}

TEST(Gguf, tells_both_meanings_of_the_type_Q2_0_by_the_places_of_the_tensors) {
  for (const auto& [group, type] : {std::pair<int64_t, BlockType>{64, BlockType::q2_0}, {128, BlockType::pq2_0}}) {
    const std::string file = q2_0_file(group);
    const auto header = parse_gguf(std::as_bytes(std::span(file)), "f");
    ASSERT_TRUE(header) << header.error().message;
    for (const GgufTensor& t : header->tensors)
      if (t.name != "norm") EXPECT_EQ(t.type, type) << t.name;
    EXPECT_EQ(header->tensors[0].end - header->tensors[0].begin, 6 * 256 / group * (2 + group / 4));
    const std::string cut = q2_0_file(group, 64);
    EXPECT_FALSE(parse_gguf(std::as_bytes(std::span(cut)), "f"));
  }
}

TEST(Gguf, files_in_a_rotated_basis_are_refused) {
  const TempFolder folder;
  const auto weights = ::onw::testing::tiny_weights(false);
  GgufBytes b = ::onw::testing::tiny_metadata(weights.size(), 1);
  b.key_u32("prism.hadamard.block_size", 1024);
  folder.write("m.gguf", ::onw::testing::with_tiny_tensors(b, weights, 0));
  const auto done = convert(folder / "m.gguf", folder / "m", {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::unsupported);
  EXPECT_THAT(done.error().message, HasSubstr("Take that folder"));
}

}  // namespace
}  // namespace onw
