// The OpenVINO target on OpenVINO's CPU device: whole models against the reference without quantised activations, and
// the promises of targets/executable.h.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "passes/quantise.h"
#include "targets/conformance.h"
#include "targets/reference/reference.h"
#include "targets/rest.h"
#include "tests/logits_kl.h"
#include "tests/openvino_model.h"
#include "tests/random_model.h"
#include "tests/run_ids.h"

namespace onw::testing {
namespace {

RandomModel model(std::string_view family, int64_t hidden, WeightFormat format = WeightFormat::q4g128,
                  int64_t window = 0, int64_t layers = 2) {
  nlohmann::json config = tiny_config(family, hidden);
  if (family != "gemma4") config["num_hidden_layers"] = layers;
  if (window > 0) config.update({{"sliding_window", window}, {"sliding_window_pattern", 2}});
  return random_model(config, [format](const WeightDecl&) { return format; });
}

// ---- Conformance: products depend on the number of rows here, by their last bits.

// One of two compiled ones, in turns: compiling takes longer than any check.
class Shared final : public Executable {
 public:
  explicit Shared(std::shared_ptr<Executable> target) : target_(std::move(target)) {}
  const ExecutableInfo& info() const override { return target_->info(); }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return target_->new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return target_->need(tokens, sequences); }
  Cost cost(const StepShape& shape) const override { return target_->cost(shape); }
  bool mixes_prompt_and_decode() const override { return target_->mixes_prompt_and_decode(); }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    rest_until_done(*target_);  // graphs with attention inside come between two steps
    return target_->run(step, cancel);
  }

 private:
  std::shared_ptr<Executable> target_;
};

struct Pair {
  std::shared_ptr<Executable> targets[2];
  size_t next = 0;
};

ConformanceSubject conforming(std::string name, RandomModel m, OpenVinoOptions options) {
  options.exact = true;
  options.max_step_rows = 64;
  const auto pair = std::make_shared<Pair>();
  return {.name = std::move(name),
          .make = [m, options, pair]() -> std::unique_ptr<Executable> {
            std::shared_ptr<Executable>& target = pair->targets[pair->next++ % 2];
            if (target == nullptr) target = openvino_of(m, options);
            return std::make_unique<Shared>(target);
          },
          .tokens = 40,
          // A last bit before a rounding moves what is kept by one step of it: a code of 127, or F16's last bit.
          .tolerance = options.kv == KvFormat::int8 ? 5e-2 : 5e-3,
          .why_not = no_openvino,
          .release = [pair] { *pair = {}; }};
}

// Of 24 tokens, which cross the edges at 8 and at 16.
ConformanceSubject short_of(ConformanceSubject subject) {
  subject.tokens = 24;
  return subject;
}

[[maybe_unused]] const bool kRegistered[] = {
    register_conformance(conforming("WithOpenVinoConformance_llama", model("llama", 320), {})),
    register_conformance(conforming("WithOpenVinoConformance_window", model("gemma3", 320, WeightFormat::q4g128, 20),
                                    {.kv = KvFormat::int8})),
    register_conformance(conforming("WithOpenVinoConformance_graphs", model("qwen3", 320),
                                    {.block_rows = {1, 8}, .chunk_positions = 16})),
    register_conformance(conforming("WithOpenVinoConformance_graphs_window",
                                    model("gemma3", 320, WeightFormat::q4g128, 20),
                                    {.kv = KvFormat::int8, .block_rows = {4}, .chunk_positions = 8})),
    register_conformance(
        short_of(conforming("WithOpenVinoConformance_shared_caches", model("gemma4", 320, WeightFormat::q4g128, 20),
                            {.kv = KvFormat::int8, .block_rows = {4}, .chunk_positions = 8}))),
    register_conformance(short_of(conforming("WithOpenVinoConformance_hybrid", model("qwen3_5", 320), {}))),
    register_conformance(short_of(conforming("WithOpenVinoConformance_hybrid_in_graphs", model("qwen3_5", 320),
                                             {.block_rows = {8}, .chunk_positions = 16}))),
    register_conformance(short_of(conforming("WithOpenVinoConformance_hybrid_row_by_row", model("qwen3_5", 320),
                                             {.block_rows = {1, 4}, .chunk_positions = 16}))),
    register_conformance(short_of(conforming("WithOpenVinoConformance_hybrid_in_chunks", model("qwen3_5", 320),
                                             {.kv = KvFormat::int8, .block_rows = {1, 64}, .chunk_positions = 16}))),
    register_conformance(short_of(conforming("WithOpenVinoConformance_convolutions", model("lfm2", 320),
                                             {.block_rows = {1, 16}, .chunk_positions = 16}))),
    register_conformance(short_of(
        conforming("WithOpenVinoConformance_fused", model("llama", 320, WeightFormat::q4g128, 0, 1),
                   {.kv = KvFormat::int8, .block_rows = {4}, .chunk_positions = 8, .fused = {.variants = 9}}))),
};

// ---- Against the reference

class WithOpenVino : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_openvino(); !why.empty()) GTEST_SKIP() << why;
  }

  // Prompts of those lengths, in steps of `segments`: within 1e-4 of the largest logit, and a KL of at most 1e-7.
  static void agrees(const RandomModel& m, OpenVinoOptions options, const std::vector<int64_t>& counts,
                     const std::vector<int64_t>& segments, std::string_view what) {
    options.exact = true;
    const auto ours = openvino_of(m, options);
    ASSERT_NE(ours, nullptr) << what;
    auto reference = make_reference(set_kv_format(m.program, name(options.kv)), m.weights, {.threads = 2});
    ASSERT_TRUE(reference) << reference.error().message;
    for (const int64_t count : counts) {
      const auto ids = some_tokens(**reference, count, 5);
      const auto expected = logits_in_segments(**reference, ids, std::vector<int64_t>{100});
      ASSERT_TRUE(expected) << expected.error().message;
      const auto got = logits_in_segments(*ours, ids, segments);
      ASSERT_TRUE(got) << what << ": " << got.error().message;
      ASSERT_EQ(got->size(), expected->size());
      const double off = largest_difference(*expected, *got), kl = mean_kl(*expected, *got, ours->info().vocabulary);
      EXPECT_LE(off, 1e-4) << what << ", " << count << " tokens";
      EXPECT_LE(std::fabs(kl), 1e-7) << what << ", " << count << " tokens";
      EXPECT_NE(off, 0) << what << ": two targets that agree to the last bit are one";
    }
  }
};

TEST_F(WithOpenVino, agrees_with_the_reference_in_every_family) {
  for (const char* family : {"llama", "qwen2", "qwen3", "granite", "granitemoehybrid", "gemma3", "gemma4"})
    agrees(model(family, 320), {.kv = KvFormat::f32}, {40}, {17, 1, 1, 64}, family);
}

// Steps that end around the edges of their states' chunks; static blocks for a hybrid and a mixture.
TEST_F(WithOpenVino, agrees_with_the_reference_in_families_whose_states_and_experts_the_host_computes) {
  for (const char* family : {"lfm2", "qwen3_5", "qwen3_moe", "gpt_oss", "lfm2_moe", "qwen3_5_moe"})
    agrees(model(family, 320), {.kv = KvFormat::f32}, {34}, {15, 1, 1, 16, 1}, family);
  nlohmann::json config = tiny_config("granitemoehybrid", 320);
  config.update({{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"intermediate_size", 192}});
  agrees(random_model(config, [](const WeightDecl&) { return WeightFormat::q4c; }), {.kv = KvFormat::f32}, {20},
         {15, 1, 16}, "granitemoehybrid with experts");
  agrees(model("qwen3_moe", 320), {.kv = KvFormat::f32, .block_rows = {16}, .chunk_positions = 8}, {33}, {17, 1, 15},
         "qwen3_moe");
}

// Blocks of 1, 4, 16 and 64 rows, whole and in part, that begin and end anywhere in the states' chunks.
TEST_F(WithOpenVino, agrees_with_the_reference_with_states_inside_static_graphs) {
  for (const char* family : {"qwen3_5", "lfm2", "qwen3_5_moe", "lfm2_moe"})
    agrees(model(family, 320), {.kv = KvFormat::f32, .block_rows = {1, 4, 16, 64}, .chunk_positions = 32}, {115},
           {64, 1, 1, 4, 3, 9, 20, 1, 12}, family);
  agrees(model("qwen3_5", 320), {.kv = KvFormat::f32, .block_rows = {1, 16}, .chunk_positions = 32}, {70},
         {16, 1, 17, 2}, "in two sizes");
}

// As it is served: the host's experts read INT8 activations, as those of the CPU.
TEST_F(WithOpenVino, computes_experts_as_the_cpu_does_where_it_is_not_exact) {
  const RandomModel m = model("qwen3_moe", 320);
  const auto ids = some_tokens(*openvino_of(m, {}), 40, 5);
  const auto logits = [&](bool exact) {
    const auto target = openvino_of(m, {.kv = KvFormat::f32, .exact = exact});
    return logits_in_segments(*target, ids, std::vector<int64_t>{31, 1}).value();
  };
  const auto exact = logits(true), served = logits(false);
  const double kl = mean_kl(exact, served, m.program.vocabulary);
  EXPECT_GT(kl, 1e-7);
  EXPECT_LE(kl, 2e-2);
}

// Every format by itself is the business of the lowering's test.
TEST_F(WithOpenVino, agrees_with_the_reference_in_every_kind_of_format) {
  using enum WeightFormat;
  for (const WeightFormat format :
       {f32, f16, bf16, q8c, q8g128, q8g32, q4g128, q4g32, q4sg128, q4sg32, q4c, q4g32m, q5g32m, u2g128})
    agrees(model("llama", 512, format, 0, 1), {.kv = KvFormat::f32}, {12}, {9, 1}, name(format));
}

// Each matrix of a model in another format, until every family has had them all, and experts what the host reads.
TEST_F(WithOpenVino, agrees_with_the_reference_in_every_format_of_every_family) {
  using enum WeightFormat;
  const std::vector<WeightFormat> of_graphs = {f32,   f16,     bf16,   q8c, q8g128, q8g32,  q4g128,
                                               q4g32, q4sg128, q4sg32, q4c, q4g32m, q5g32m, u2g128};
  const std::vector<WeightFormat> of_experts = {f16, q8c, q8g32, q4c, q4g128, q4g32m, nf4c, mxfp4, u2g128};
  for (const char* family : {"llama", "qwen2", "qwen3", "granite", "granitemoehybrid", "gemma3", "gemma4", "lfm2",
                             "qwen3_5", "qwen3_moe", "gpt_oss", "lfm2_moe", "qwen3_5_moe"}) {
    size_t next = 0, next_of_experts = 0;
    std::set<WeightFormat> seen, seen_of_experts;
    const auto missing = [&] { return seen.size() < of_graphs.size(); };
    for (int number = 0; number < 6 && missing(); ++number, ++next) {
      nlohmann::json config = tiny_config(family, 512);
      if (std::string_view(family) != "gemma4") config["num_hidden_layers"] = 2;
      const RandomModel m = random_model(config, [&](const WeightDecl& w) {
        if (w.role == WeightRole::expert) return of_experts[next_of_experts++ % of_experts.size()];
        return of_graphs[next++ % of_graphs.size()];
      });
      for (const WeightDecl& w : m.program.weights) {
        if (w.role == WeightRole::matrix || w.role == WeightRole::head) seen.insert(w.format);
        if (w.role == WeightRole::expert) seen_of_experts.insert(w.format);
      }
      agrees(m, {.kv = KvFormat::f32}, {18}, {15, 1, 2}, family);
    }
    for (const WeightFormat f : of_graphs) EXPECT_TRUE(seen.contains(f)) << family << ": no weight in " << name(f);
    if (next_of_experts > of_experts.size())
      for (const WeightFormat f : of_experts)
        EXPECT_TRUE(seen_of_experts.contains(f)) << family << ": no expert in " << name(f);
  }
}

// NF4's levels are the CPU's rounded to codes of INT8, and the device's own; a router may then choose other experts.
TEST_F(WithOpenVino, agrees_with_the_reference_in_NF4_by_what_its_levels_are_rounded_to) {
  for (const char* family : {"llama", "qwen2", "qwen3", "granite", "granitemoehybrid", "gemma3", "gemma4", "lfm2",
                             "qwen3_5", "qwen3_moe", "gpt_oss", "lfm2_moe", "qwen3_5_moe"}) {
    const RandomModel m = model(family, 320, WeightFormat::nf4c);
    const auto ours = openvino_of(m, {.kv = KvFormat::f32, .exact = true});
    const auto reference = make_reference(set_kv_format(m.program, "f32"), m.weights, {.threads = 2});
    ASSERT_TRUE(ours != nullptr && reference) << family;
    const auto ids = some_tokens(*ours, 12, 5);
    const auto expected = logits_in_segments(**reference, ids, std::vector<int64_t>{100});
    const auto got = logits_in_segments(*ours, ids, std::vector<int64_t>{9, 1});
    ASSERT_TRUE(expected && got) << family;
    const bool routes =
        std::ranges::any_of(m.program.weights, [](const WeightDecl& w) { return w.role == WeightRole::expert; });
    EXPECT_LE(mean_kl(*expected, *got, m.program.vocabulary), routes ? 5e-2 : 5e-3) << family;
  }
}

TEST_F(WithOpenVino, agrees_with_the_reference_in_a_rotated_basis) {
  nlohmann::json config = tiny_config("llama", 512);
  config["num_hidden_layers"] = 1;
  config["modules"] = {{{"path", "model.embed_tokens"}, {"block", 512}, {"embedding", true}},
                       {{"path", "model.layers.0.self_attn.q_proj"}, {"block", 512}},
                       {{"path", "model.layers.0.mlp.down_proj"}, {"block", 128}}};
  const RandomModel m = random_model(config, [](const WeightDecl&) { return WeightFormat::u2g128; });
  agrees(m, {.kv = KvFormat::f32}, {12}, {9, 1}, "rotated");
  agrees(m, {.kv = KvFormat::f32, .block_rows = {1, 4}, .chunk_positions = 8}, {12}, {9, 1}, "rotated, static");
}

// The graphs that an NPU would get: prompts that end around every block's and every chunk's edge.
TEST_F(WithOpenVino, agrees_with_the_reference_in_static_blocks_and_chunks) {
  agrees(model("qwen3", 320), {.kv = KvFormat::f32, .block_rows = {1, 4, 16}, .chunk_positions = 8},
         {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65, 97}, {100}, "static blocks");
}

TEST_F(WithOpenVino, agrees_with_the_reference_over_windows_in_chunks) {
  agrees(model("gemma3", 320, WeightFormat::q4g128, 20),
         {.kv = KvFormat::f32, .block_rows = {1, 16}, .chunk_positions = 8}, {90}, {33, 7}, "gemma3, window of 20");
}

// Last layers read what others keep: rings of windows and chunks that grow.
TEST_F(WithOpenVino, agrees_with_the_reference_over_shared_caches_in_chunks) {
  agrees(model("gemma4", 320, WeightFormat::q4g128, 20),
         {.kv = KvFormat::f32, .block_rows = {1, 16}, .chunk_positions = 8}, {1, 17, 90}, {33, 7}, "gemma4");
}

// Scales stand outside the products: the same numbers as those of the reference over an INT8 cache, where its queries
// and weights are not quantised.
TEST_F(WithOpenVino, agrees_with_other_caches_by_what_they_round) {
  const RandomModel m = model("llama", 320);
  const auto ids = some_tokens(*openvino_of(m, {}), 60, 5);
  const auto logits = [&](const OpenVinoOptions& options) {
    return logits_in_segments(*openvino_of(m, options), ids, std::vector<int64_t>{31, 1}).value();
  };
  const int64_t vocabulary = m.program.vocabulary;
  const auto exact = logits({.kv = KvFormat::f32, .exact = true});
  const auto f16 = logits({.kv = KvFormat::f16, .exact = true, .block_rows = {1, 16}, .chunk_positions = 16});
  const auto int8 = logits({.kv = KvFormat::int8, .exact = true, .block_rows = {1, 16}, .chunk_positions = 16});
  EXPECT_LE(mean_kl(exact, f16, vocabulary), 1e-6);
  EXPECT_LE(mean_kl(exact, int8, vocabulary), 1e-3);
  EXPECT_GT(mean_kl(exact, int8, vocabulary), mean_kl(exact, f16, vocabulary));
}

TEST_F(WithOpenVino, agrees_with_the_reference_over_windows) {
  agrees(model("gemma3", 320, WeightFormat::q4g128, 20), {.kv = KvFormat::f32}, {90}, {33, 7}, "gemma3, window of 20");
}

TEST_F(WithOpenVino, agrees_with_the_reference_over_an_F16_cache) {
  const RandomModel m = model("llama", 320);
  const auto ours = openvino_of(m, {.kv = KvFormat::f16, .exact = true});
  ASSERT_NE(ours, nullptr);
  auto reference = make_reference(set_kv_format(m.program, "f16"), m.weights, {.threads = 2});
  ASSERT_TRUE(reference);
  const auto ids = some_tokens(*ours, 60, 5);
  const auto expected = logits_in_segments(**reference, ids, std::vector<int64_t>{100});
  const auto got = logits_in_segments(*ours, ids, std::vector<int64_t>{31, 1});
  ASSERT_TRUE(expected && got);
  EXPECT_LE(mean_kl(*expected, *got, ours->info().vocabulary), 1e-6);
}

// The NPU plugin takes our graphs through its own path to the device, which is the CPU here: every graph is one that it
// reads, cuts and runs, and it changes no bit.
TEST_F(WithOpenVino, gives_the_same_bits_by_the_path_of_the_NPU_plugin) {
  const auto runtime = openvino_runtime();
  for (const auto& [key, value] :
       {std::pair("INFERENCE_PRECISION_HINT", "f32"), std::pair("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0")}) {
    const auto set = runtime->set_property("CPU", key, value);  // those given to the NPU are not handed on
    ASSERT_TRUE(set) << set.error().message;
  }
  const openvino::Properties stand_in = {
      {"NPU_USE_NPUW", "YES"}, {"NPUW_DEVICES", "CPU"}, {"NPUW_ONLINE_PIPELINE", "NONE"}};
  for (const KvFormat kv : {KvFormat::f16, KvFormat::int8}) {
    const RandomModel m = model("qwen3", 320);
    const OpenVinoOptions options{.kv = kv, .exact = true, .block_rows = {1, 8}, .chunk_positions = 16};
    OpenVinoOptions by_plugin = options;
    by_plugin.openvino_device = "NPU";
    by_plugin.properties = stand_in;
    const auto direct = openvino_of(m, options), npuw = openvino_of(m, by_plugin);
    ASSERT_TRUE(direct && npuw);
    const auto ids = some_tokens(*direct, 40, 9);
    const auto expected = logits_in_segments(*direct, ids, std::vector<int64_t>{19, 1});
    const auto got = logits_in_segments(*npuw, ids, std::vector<int64_t>{19, 1});
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(same_bits(*expected, *got)) << name(kv) << ": " << largest_difference(*expected, *got);
  }
}

// The graphs that an NPU would get, rewritten for its arithmetic, in FP32: the numbers of the plain ones.
TEST_F(WithOpenVino, computes_the_same_with_the_rewritings_for_an_NPU) {
  for (const char* family : {"qwen2", "gemma3", "gemma4"}) {
    const RandomModel m = model(family, 320);
    OpenVinoOptions options{.kv = KvFormat::int8, .exact = true, .block_rows = {1, 16}, .chunk_positions = 16};
    const auto plain = openvino_of(m, options);
    options.platform = "4000";
    const auto legal = openvino_of(m, options);
    ASSERT_TRUE(plain && legal);
    const auto ids = some_tokens(*plain, 40, 9);
    const auto expected = logits_in_segments(*plain, ids, std::vector<int64_t>{19, 1});
    const auto got = logits_in_segments(*legal, ids, std::vector<int64_t>{19, 1});
    ASSERT_TRUE(expected && got) << family;
    EXPECT_LE(std::fabs(mean_kl(*expected, *got, m.program.vocabulary)), 1e-5) << family;
    EXPECT_NE(largest_difference(*expected, *got), 0) << family << ": the same graphs";
  }
}

TEST_F(WithOpenVino, says_which_graphs_are_compiled_and_stops_when_told) {
  const RandomModel m = model("llama", 320);
  std::vector<int> seen;
  OpenVinoOptions options{.runtime = openvino_runtime(), .block_rows = {1, 4}};
  options.on_compiled = [&](int done, int total) {
    EXPECT_EQ(total, 8);  // three segments and the head, twice
    seen.push_back(done);
    return done < 3;
  };
  const auto target = make_openvino(m.program, m.weights, options);
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::cancelled);
  EXPECT_EQ(seen, (std::vector{1, 2, 3}));
}

TEST_F(WithOpenVino, refuses_a_format_that_the_device_does_not_take) {
  const RandomModel m = model("llama", 320, WeightFormat::iq4g32);
  const auto target = make_openvino(m.program, m.weights, {.runtime = openvino_runtime()});
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::unsupported);
  EXPECT_NE(target.error().message.find("iq4g32"), std::string::npos) << target.error().message;
}

}  // namespace
}  // namespace onw::testing
