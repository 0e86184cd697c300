// The rules that multiply weights by powers of two when a model is converted: no logit changes, and each has a case in
// which it matters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "base/temp_folder.h"
#include "convert/convert.h"
#include "convert/equalise_inputs.h"
#include "models/registry.h"
#include "models/residual.h"
#include "passes/quantise.h"
#include "quant/quantise.h"
#include "runtime/load.h"
#include "store/safetensors_bytes.h"
#include "targets/reference/reference.h"
#include "tests/run_ids.h"
#include "tests/tiny_weights.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;

Golden load_golden(const std::string& name) {
  auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens" / (name + ".safetensors"));
  EXPECT_TRUE(golden) << golden.error().message;
  return golden ? std::move(*golden) : Golden();
}

// A tiny model, converted; and the same parameters in FP32 that no rule has touched.
class Model {
 public:
  Model(const std::string& golden, const ConvertOptions& options, const TinyChange& change = {})
      : golden_(load_golden(golden)), change_(change) {
    EXPECT_TRUE(write_tiny_model(golden_, folder_ / "published", change_));
    const auto done = convert(folder_ / "published", folder_ / "model", options);
    EXPECT_TRUE(done) << done.error().message;
    for (const TensorReport& r : done->tensors) altered_[r.name] = r.altered;
    opened_ = std::make_unique<OpenedModel>(open_model(folder_ / "model").value());
  }

  const Program& program() const { return opened_->program; }
  WeightSet weights() const {
    return {.find = [folder = opened_->folder](std::string_view name) { return folder->weight(name); },
            .owner = opened_->folder};
  }
  const std::string& altered(const std::string& weight) const { return altered_.at(weight); }
  const std::map<std::string, std::string>& altered() const { return altered_; }
  std::span<const int32_t> ids() const {
    return std::span(golden_.ids).first(std::min<size_t>(golden_.ids.size(), 24));
  }
  const Golden& golden() const { return golden_; }

  Program published_program() const { return build_program(nlohmann::json::parse(golden_.config)).value(); }
  WeightSet published_weights() const { return tiny_weights(golden_, published_program(), change_).value(); }

  std::vector<float> logits(const Program& program, const WeightSet& weights) const {
    auto target = make_reference(program, weights, {.threads = 2});
    EXPECT_TRUE(target) << target.error().message;
    return logits_in_segments(**target, ids(), std::vector<int64_t>{1000}).value();
  }

 private:
  TempFolder folder_;
  Golden golden_;
  TinyChange change_;
  std::map<std::string, std::string> altered_;
  std::unique_ptr<OpenedModel> opened_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Keys.

const ConvertOptions kExact = {.format = WeightFormat::f32};

// Like Qwen2: biases make one pair of each key head far larger than the others. Queries are small there.
TinyChange large_keys(const std::string& where, int64_t head_dim, float factor) {
  return [=](const TinyTensor& t, std::vector<float>& values) {
    const bool is_key = t.name.ends_with("k_" + where), is_query = t.name.ends_with("q_" + where);
    if (!is_key && !is_query) return;
    for (size_t i = 0; i < values.size(); ++i)
      if (static_cast<int64_t>(i) % (head_dim / 2) == 2) values[i] = is_key ? factor * (i % 3 + 1.0f) : values[i] / 16;
  };
}

// Errors of logits that an INT8 cache brings: with the rule, and without it.
std::pair<double, double> cache_errors(const Model& m) {
  const auto exact = m.logits(m.published_program(), m.published_weights());
  const auto with = m.logits(quantise_activations(m.program(), "int8"), m.weights());
  const auto without = m.logits(quantise_activations(m.published_program(), "int8"), m.published_weights());
  return {relative_error(with, exact), relative_error(without, exact)};
}

TEST(EqualisedKeys, of_biases_keep_every_bit_of_the_logits) {
  const Model m("qwen2-g64", kExact, large_keys("proj.bias", 32, 40));
  EXPECT_THAT(m.altered("layers.0.attn.k"), HasSubstr("keys equalised: x 2^-"));
  EXPECT_THAT(m.altered("layers.0.attn.q.bias"), HasSubstr("queries for keys equalised"));
  EXPECT_EQ(m.altered("layers.0.attn.v"), "");
  EXPECT_TRUE(same_bits(m.logits(m.program(), m.weights()), m.logits(m.published_program(), m.published_weights())));
}

TEST(EqualisedKeys, of_norms_keep_every_bit_of_the_logits) {
  const Model m("qwen3-g64", kExact, large_keys("norm.weight", 16, 40));
  EXPECT_THAT(m.altered("layers.1.attn.k_norm"), HasSubstr("keys equalised"));
  EXPECT_EQ(m.altered("layers.1.attn.k"), "");
  EXPECT_TRUE(same_bits(m.logits(m.program(), m.weights()), m.logits(m.published_program(), m.published_weights())));
}

TEST(EqualisedKeys, lose_less_in_an_int8_cache) {
  for (const auto& [golden, where, d] :
       {std::tuple{"qwen2-g64", "proj.bias", 32}, std::tuple{"qwen3-g64", "norm.weight", 16}}) {
    const Model m(golden, kExact, large_keys(where, d, 40));
    const auto [with, without] = cache_errors(m);
    EXPECT_LT(with, 0.5 * without) << golden;
  }
}

TEST(EqualisedKeys, are_left_as_published_where_it_would_not_pay) {
  for (const char* golden : {"llama-g64", "qwen3-g64", "gemma3-g64", "granite-g64"}) {
    const Model m(golden, kExact);
    for (const auto& [name, altered] : m.altered()) EXPECT_EQ(altered, "") << golden << " " << name;
  }
}

// Inputs.

constexpr int64_t kEvery = 8;

// Every eighth channel behind the norms is 64 times as large as the others, and its columns as much smaller.
const TinyChange kUnevenChannels = [](const TinyTensor& t, std::vector<float>& values) {
  const bool is_norm =
      t.name.ends_with("input_layernorm.weight") || t.name.ends_with("post_attention_layernorm.weight");
  bool reads = false;
  for (const char* part : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight"})
    reads = reads || t.name.ends_with(part);
  const int64_t channels = t.shape.back();
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
    if (i % channels % kEvery == 0 && (is_norm || reads)) values[static_cast<size_t>(i)] *= is_norm ? 64.0f : 1 / 64.0f;
};

// What a calibration would find of those.
std::filesystem::path write_sizes(const TempFolder& folder, const Golden& golden) {
  SafetensorsBytes file;
  const auto program = build_program(nlohmann::json::parse(golden.config)).value();
  for (const NormReaders& norm : norm_readers(program))
    for (const std::string& reader : norm.readers) {
      const int64_t channels = program.weight(reader)->shape[1];
      std::vector<float> squares(static_cast<size_t>(channels), 1.0f);
      for (size_t i = 0; i < squares.size(); i += kEvery) squares[i] = 64 * 64;
      file.add_f32(reader, {channels}, squares);
    }
  return folder.write("sizes.safetensors", file.bytes());
}

TEST(EqualisedInputs, keep_every_bit_of_the_logits) {
  const TempFolder folder;
  for (const char* name : {"llama-g64", "gemma3-g64"}) {
    ConvertOptions options = kExact;
    options.importance = write_sizes(folder, load_golden(name));
    const Model m(name, options), plain(name, kExact);
    EXPECT_THAT(m.altered("layers.0.attn_norm"), HasSubstr("channels for its readers: / 2^0 to 2^3"));
    EXPECT_THAT(m.altered("layers.1.mlp.up"), HasSubstr("inputs equalised: x 2^0 to 2^3"));
    EXPECT_EQ(m.altered("layers.0.mlp.down"), "");
    EXPECT_TRUE(same_bits(m.logits(m.program(), m.weights()), plain.logits(plain.program(), plain.weights()))) << name;
  }
}

TEST(EqualisedInputs, are_left_as_they_are_before_weights_of_four_bits) {
  const TempFolder folder;
  const Model m("llama-g64",
                {.format = WeightFormat::q4g64, .importance = write_sizes(folder, load_golden("llama-g64"))},
                kUnevenChannels);
  EXPECT_EQ(m.altered("layers.0.attn_norm"), "");
  EXPECT_EQ(m.altered("layers.1.mlp.up"), "");
}

TEST(EqualisedInputs, lose_less_when_they_are_quantised) {
  const TempFolder folder;
  const ConvertOptions options = {.format = WeightFormat::q8g32};
  ConvertOptions told = options;
  told.importance = write_sizes(folder, load_golden("llama-g64"));
  const auto error = [&](const Model& m) {
    return relative_error(m.logits(quantise_activations(m.program(), "f16"), m.weights()),
                          m.logits(m.published_program(), m.published_weights()));
  };
  EXPECT_LT(error(Model("llama-g64", told, kUnevenChannels)),
            0.5 * error(Model("llama-g64", options, kUnevenChannels)));
}

// The head.

ConvertOptions shifted(int by, std::optional<WeightFormat> format = WeightFormat::f32) {
  return {.format = format, .residual_shift = by};
}

TEST(ResidualShift, keeps_every_bit_of_the_logits_in_every_family) {
  for (const char* golden :
       {"llama-odd", "qwen2-odd", "qwen3-odd", "granite-odd", "granitemoehybrid-odd", "gemma3-odd", "gemma4-odd",
        "granitemoehybrid-experts-odd", "gpt_oss-odd", "lfm2_moe-g128", "qwen3_5_moe-g64"}) {
    const Model m(golden, shifted(5)), plain(golden, shifted(0));
    EXPECT_NE(m.program().embedding_scale, plain.program().embedding_scale);
    EXPECT_TRUE(same_bits(m.logits(m.program(), m.weights()), plain.logits(plain.program(), plain.weights())))
        << golden;
  }
}

TEST(ResidualShift, keeps_every_bit_of_quantised_weights_and_activations) {
  const Model m("llama-g64", shifted(3, {})), plain("llama-g64", shifted(0, {}));
  EXPECT_THAT(m.altered("layers.0.attn.o"), HasSubstr("residual stream / 2^3"));
  EXPECT_THAT(m.altered("layers.1.mlp.down.bias"), HasSubstr("residual stream / 2^3"));
  EXPECT_EQ(m.altered("embed"), "");
  EXPECT_TRUE(same_bits(m.logits(quantise_activations(m.program(), "int8"), m.weights()),
                        plain.logits(quantise_activations(plain.program(), "int8"), plain.weights())));
}

// The largest number in the stream before the last norm.
float stream_peak(const Model& m) {
  Program program = m.program();
  for (Function& f : program.functions)
    for (Output& output : f.outputs)
      if (output.name == "hidden") output.value = f.node(output.value).inputs[0];
  auto target = make_reference(program, m.weights(), {.threads = 2});
  EXPECT_TRUE(target) << target.error().message;
  auto sequence = (*target)->new_sequence().value();
  std::vector<Row> rows;
  for (size_t i = 0; i < 8; ++i) {
    rows.push_back(text_row(0, static_cast<int64_t>(i), m.golden().ids[i], false));
    rows.back().wants_hidden = true;
  }
  Sequence* const sequences[] = {sequence.get()};
  const auto out = (*target)->run({sequences, rows}, CancelToken());
  EXPECT_TRUE(out) << out.error().message;
  float peak = 0;
  for (const float x : out->hidden) peak = std::max(peak, std::fabs(x));
  return peak;
}

TEST(ResidualShift, brings_a_stream_beyond_F16_back_into_it) {
  const TinyChange large = [](const TinyTensor& t, std::vector<float>& values) {
    if (t.name.ends_with("down_proj.weight"))
      for (float& x : values) x *= 3e4f;
  };
  const float without = stream_peak(Model("llama-g64", shifted(0), large));
  EXPECT_GT(without, 65504.0f);
  int shift = 0;
  while (std::ldexp(without, -shift) > 8192) ++shift;
  ASSERT_LE(shift, kMaxResidualShift);
  EXPECT_EQ(stream_peak(Model("llama-g64", shifted(shift), large)), std::ldexp(without, -shift));
}

// The head.

// A row of 8 is so small that its scale is a subnormal of FP16.
const TinyChange kSmallRows = [](const TinyTensor& t, std::vector<float>& values) {
  if (t.name != "lm_head.weight") return;
  const auto inputs = static_cast<size_t>(t.shape[1]);
  for (size_t i = 0; i < values.size(); ++i)
    if (i / inputs % 8 == 5) values[i] *= 0x1p-9f;
};

// As a device without subnormals reads them.
std::vector<std::byte> flushed(std::span<const std::byte> scales) {
  std::vector<std::byte> out(scales.begin(), scales.end());
  for (size_t i = 0; i < out.size(); i += 2) {
    uint16_t half = 0;
    std::memcpy(&half, &out[i], 2);
    if ((half & 0x7fff) < 0x400) half = 0;
    std::memcpy(&out[i], &half, 2);
  }
  return out;
}

WeightSet with_head(const Model& m, const WeightView& head, std::shared_ptr<const void> owner = {}) {
  return {.find = [weights = m.weights(), head](std::string_view name) -> Result<WeightView> {
            if (name == "head") return head;
            return weights.find(name);
          },
          .owner = std::move(owner)};
}

WeightSet with_flushed_head(const Model& m, WeightView head) {
  const auto scales = std::make_shared<std::vector<std::byte>>(flushed(head.scales));
  head.scales = *scales;
  return with_head(m, head, scales);
}

TEST(HeadScales, are_no_subnormals_so_that_no_logit_becomes_zero) {
  const Model m("llama-g64", {}, kSmallRows);
  EXPECT_THAT(m.altered("head"), HasSubstr("scales raised to 2^-14"));
  const WeightView head = *m.weights().find("head");
  ASSERT_EQ(head.format, WeightFormat::q8c);
  const auto ours = m.logits(m.program(), m.weights());
  EXPECT_TRUE(same_bits(m.logits(m.program(), with_flushed_head(m, head)), ours));

  const TinyTensor& published = *std::ranges::find(m.golden().tensors, "lm_head.weight", &TinyTensor::name);
  std::vector<std::byte> codes(static_cast<size_t>(head.outputs * head.inputs)),
      scales(2 * static_cast<size_t>(head.outputs));
  ASSERT_TRUE(quantise(head.format, tiny_tensor(m.golden(), published, kSmallRows), head.outputs, head.inputs,
                       {codes, scales, {}}));
  const WeightView plain = {head.format, Layout::rows, head.outputs, head.inputs, codes, scales, {}};
  const auto without = m.logits(m.program(), with_flushed_head(m, plain));
  const auto zeros = [](const std::vector<float>& logits) { return std::ranges::count(logits, 0.0f); };
  EXPECT_GT(zeros(without), static_cast<int64_t>(m.ids().size()));
  EXPECT_EQ(zeros(ours), 0);
  EXPECT_LT(relative_error(ours, m.logits(m.program(), with_head(m, plain))), 1e-3);
}

}  // namespace
}  // namespace onw::testing
