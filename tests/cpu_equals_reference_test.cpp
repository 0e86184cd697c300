// The CPU target computes what the quantised reference computes, to the bit: every family, format, instruction set,
// thread count, cut.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "passes/quantise.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/reference/reference.h"
#include "tests/random_model.h"

namespace onw {
namespace {

using testing::random_model;
using testing::RandomModel;
using testing::tiny_config;

std::vector<int32_t> random_tokens(size_t n, uint32_t seed = 3) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % 101);
  return tokens;
}

// Logits of every token, the tokens given in steps of the sizes `cuts` (repeated).
std::vector<float> logits_of(Executable& target, std::span<const int32_t> tokens, const std::vector<size_t>& cuts) {
  auto sequence = target.new_sequence();
  EXPECT_TRUE(sequence);
  std::vector<float> all;
  for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
    const size_t n = std::min(cuts[i % cuts.size()], tokens.size() - at);
    std::vector<Row> rows;
    for (size_t k = 0; k < n; ++k) rows.push_back(text_row(0, static_cast<int64_t>(at + k), tokens[at + k], true));
    Sequence* const sequences[] = {sequence->get()};
    const auto out = target.run({sequences, rows}, CancelToken());
    EXPECT_TRUE(out) << (out ? "" : out.error().message);
    if (!out) return all;
    all.insert(all.end(), out->logits.begin(), out->logits.end());
    (*sequence)->commit(static_cast<int>(n));
    at += n;
  }
  return all;
}

void expect_equal_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(&a[i], &b[i], 4), 0) << what << ": element " << i << " is " << a[i] << " and " << b[i];
}

std::string_view kv_name(KvFormat kv) { return kv == KvFormat::int8 ? "int8" : kv == KvFormat::f16 ? "f16" : "f32"; }

std::vector<float> reference_logits(const RandomModel& m, KvFormat kv, std::span<const int32_t> tokens) {
  auto reference = make_reference(quantise_activations(m.program, kv_name(kv)), m.weights, {.threads = 2});
  EXPECT_TRUE(reference) << (reference ? "" : reference.error().message);
  return logits_of(**reference, tokens, {tokens.size()});
}

std::unique_ptr<Executable> cpu(const RandomModel& m, const CpuOptions& options) {
  auto tiled = cpu::tiled_in_memory(m.program, m.weights);
  EXPECT_TRUE(tiled);
  auto target = make_cpu(m.program, *tiled, options);
  EXPECT_TRUE(target) << (target ? "" : target.error().message);
  return std::move(*target);
}

struct Case {
  const char* family;
  int64_t hidden;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.family << " " << c.hidden; }

class EveryFamily : public ::testing::TestWithParam<Case> {};

TEST_P(EveryFamily, equals_the_quantised_reference_on_every_instruction_set) {
  const RandomModel m = random_model(tiny_config(GetParam().family, GetParam().hidden), [](const WeightDecl& w) {
    return w.role == WeightRole::matrix || w.role == WeightRole::expert ? WeightFormat::q4g128 : WeightFormat::q8c;
  });
  const auto tokens = random_tokens(40);
  const auto expected = reference_logits(m, KvFormat::int8, tokens);
  for (const Isa isa : available_isas(cpu_features())) {
    const auto target = cpu(m, {.isa = isa, .threads = 2});
    expect_equal_bits(logits_of(*target, tokens, {tokens.size()}), expected, std::string(name(isa)));
    expect_equal_bits(logits_of(*target, tokens, {1}), expected, std::string(name(isa)) + ", one by one");
  }
}

INSTANTIATE_TEST_SUITE_P(
    CpuEqualsReference, EveryFamily,
    ::testing::Values(Case{"llama", 48}, Case{"llama", 320}, Case{"llama", 512}, Case{"qwen2", 48}, Case{"qwen2", 320},
                      Case{"qwen2", 512}, Case{"qwen3", 48}, Case{"qwen3", 320}, Case{"qwen3", 512},
                      Case{"granite", 48}, Case{"granite", 320}, Case{"granite", 512}, Case{"granitemoehybrid", 512},
                      Case{"qwen3_moe", 48}, Case{"qwen3_moe", 320}, Case{"qwen3_moe", 512}, Case{"gpt_oss", 48},
                      Case{"gpt_oss", 512}, Case{"gemma3", 48}, Case{"gemma3", 320}, Case{"gemma3", 512},
                      Case{"gemma4", 48}, Case{"gemma4", 320}, Case{"gemma4", 512}, Case{"lfm2", 48}, Case{"lfm2", 320},
                      Case{"lfm2", 512}, Case{"qwen3_5", 48}, Case{"qwen3_5", 320}, Case{"qwen3_5", 512},
                      Case{"lfm2_moe", 48}, Case{"lfm2_moe", 512}, Case{"qwen3_5_moe", 48}, Case{"qwen3_5_moe", 320},
                      Case{"qwen3_5_moe", 512}));

// Experts in every format that they are stored in, in tiles and in rows: steps of few rows and of many, among them rows
// of which several chose one expert.
class ExpertFormats : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(ExpertFormats, equal_the_quantised_reference_on_every_instruction_set) {
  const int64_t hidden = info(GetParam()).group == 128 && info(GetParam()).bits == 2 ? 512 : 320;
  const RandomModel m = random_model(tiny_config("qwen3_moe", hidden), [](const WeightDecl& w) {
    return w.role == WeightRole::expert ? GetParam() : WeightFormat::q8c;
  });
  const auto tokens = random_tokens(22);
  const auto expected = reference_logits(m, KvFormat::f16, tokens);
  for (const Isa isa : available_isas(cpu_features())) {
    const auto target = cpu(m, {.kv = KvFormat::f16, .isa = isa, .threads = 3});
    expect_equal_bits(logits_of(*target, tokens, {tokens.size()}), expected, std::string(name(isa)));
    expect_equal_bits(logits_of(*target, tokens, {2, 1, 11}), expected, std::string(name(isa)) + ", cut");
  }
}

INSTANTIATE_TEST_SUITE_P(CpuEqualsReference, ExpertFormats,
                         ::testing::Values(WeightFormat::f16, WeightFormat::q8c, WeightFormat::q8g32, WeightFormat::q4c,
                                           WeightFormat::q4g128, WeightFormat::q4g32m, WeightFormat::nf4c,
                                           WeightFormat::mxfp4, WeightFormat::u2g128),
                         [](const auto& info) { return std::string(name(info.param)); });

class EveryFormat : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(EveryFormat, equals_the_quantised_reference_on_every_instruction_set) {
  for (const int64_t hidden : {320, 512}) {
    const RandomModel m = random_model(tiny_config("llama", hidden), [](const WeightDecl&) { return GetParam(); });
    const auto tokens = random_tokens(19);
    for (const KvFormat kv : {KvFormat::int8, KvFormat::f16}) {
      if (kv == KvFormat::f16 && hidden != 512) continue;  // the cache does not know the weights' groups
      const auto expected = reference_logits(m, kv, tokens);
      for (const Isa isa : available_isas(cpu_features())) {
        const auto target = cpu(m, {.kv = kv, .isa = isa, .threads = 2});
        expect_equal_bits(logits_of(*target, tokens, {tokens.size()}), expected, std::string(name(isa)));
        expect_equal_bits(logits_of(*target, tokens, {3, 1, 7}), expected, std::string(name(isa)) + ", cut");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CpuEqualsReference, EveryFormat,
                         ::testing::Values(WeightFormat::f32, WeightFormat::f16, WeightFormat::bf16, WeightFormat::q8c,
                                           WeightFormat::q8g128, WeightFormat::q8g32, WeightFormat::q4g128,
                                           WeightFormat::q4sg128, WeightFormat::q4g32, WeightFormat::q4c,
                                           WeightFormat::q4g32m, WeightFormat::q5g32m, WeightFormat::nf4c,
                                           WeightFormat::iq4g32, WeightFormat::mxfp4, WeightFormat::u2g128),
                         [](const auto& info) { return std::string(name(info.param)); });

// Products of 2-bit weights in a rotated basis; one block a row, and several.
TEST(CpuEqualsReference, with_rotated_inputs) {
  nlohmann::json config = tiny_config("llama", 512);
  config["modules"] = {{{"path", "model.embed_tokens"}, {"block", 512}, {"embedding", true}},
                       {{"path", "model.layers.0.self_attn.q_proj"}, {"block", 512}},
                       {{"path", "model.layers.1.self_attn.v_proj"}, {"block", 64}},
                       {{"path", "model.layers.0.mlp.down_proj"}, {"block", 128}}};
  const RandomModel m = random_model(config, [](const WeightDecl&) { return WeightFormat::u2g128; });
  const auto tokens = random_tokens(40);
  const auto expected = reference_logits(m, KvFormat::int8, tokens);
  for (const Isa isa : available_isas(cpu_features()))
    for (const int threads : {1, 2}) {
      const auto target = cpu(m, {.isa = isa, .threads = threads});
      expect_equal_bits(logits_of(*target, tokens, {tokens.size()}), expected, std::string(name(isa)));
      expect_equal_bits(logits_of(*target, tokens, {1, 9}), expected, std::string(name(isa)) + ", cut");
    }
}

class BatchInvarianceOf : public ::testing::TestWithParam<const char*> {};

TEST_P(BatchInvarianceOf, threads_cuts_and_neighbours_change_no_bit) {
  const RandomModel m =
      random_model(tiny_config(GetParam(), 512), [](const WeightDecl&) { return WeightFormat::q4g128; });
  const auto tokens = random_tokens(300);
  const Isa best = available_isas(cpu_features()).back();
  const auto alone = cpu(m, {.isa = best, .threads = 1});
  const auto expected = logits_of(*alone, tokens, {300});
  for (const int threads : {2, 3, 4}) {
    const auto target = cpu(m, {.isa = best, .threads = threads});
    expect_equal_bits(logits_of(*target, tokens, {300}), expected, std::to_string(threads) + " threads");
    expect_equal_bits(logits_of(*target, tokens, {1, 2, 3, 5, 8, 13, 21, 34, 55, 89}), expected, "Fibonacci's cuts");
  }
}

INSTANTIATE_TEST_SUITE_P(CpuEqualsReference, BatchInvarianceOf,
                         ::testing::Values("gemma3", "gemma4", "lfm2", "qwen3_5", "qwen3_5_moe"));

TEST(BatchInvariance, sessions_in_one_step_equal_sessions_alone) {
  const RandomModel m = random_model(tiny_config("qwen3", 320), [](const WeightDecl&) { return WeightFormat::q4g128; });
  const Isa best = available_isas(cpu_features()).back();
  const auto target = cpu(m, {.isa = best, .threads = 2});
  constexpr int kSessions = 5;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> expected;
  for (uint32_t s = 0; s < kSessions; ++s) {
    tokens.push_back(random_tokens(60 + 7 * s, s));
    expected.push_back(logits_of(*target, tokens.back(), {tokens.back().size()}));
  }
  std::vector<std::unique_ptr<Sequence>> owned;
  for (int s = 0; s < kSessions; ++s) owned.push_back(std::move(*target->new_sequence()));
  std::vector<std::vector<float>> seen(kSessions);
  std::mt19937 random(9);
  for (;;) {
    std::vector<Row> rows;
    std::vector<Sequence*> busy;
    std::vector<size_t> session_of, counts;
    for (size_t s = 0; s < kSessions; ++s) {
      const auto at = static_cast<size_t>(owned[s]->length());
      const size_t n = std::min<size_t>(1 + random() % 9, tokens[s].size() - at);
      if (n == 0) continue;
      for (size_t i = 0; i < n; ++i)
        rows.push_back(text_row(static_cast<int>(busy.size()), static_cast<int64_t>(at + i), tokens[s][at + i], true));
      busy.push_back(owned[s].get());
      session_of.push_back(s);
      counts.push_back(n);
    }
    if (busy.empty()) break;
    const auto out = target->run({busy, rows}, CancelToken());
    ASSERT_TRUE(out) << out.error().message;
    for (size_t r = 0; r < rows.size(); ++r) {
      auto& to = seen[session_of[static_cast<size_t>(rows[r].sequence)]];
      to.insert(to.end(), out->logits.begin() + static_cast<ptrdiff_t>(r * 101),
                out->logits.begin() + static_cast<ptrdiff_t>((r + 1) * 101));
    }
    for (size_t i = 0; i < busy.size(); ++i) busy[i]->commit(static_cast<int>(counts[i]));
  }
  for (int s = 0; s < kSessions; ++s)
    expect_equal_bits(seen[static_cast<size_t>(s)], expected[static_cast<size_t>(s)], "session " + std::to_string(s));
}

TEST(LongContext, one_shot_equals_token_by_token_over_many_pages_with_windows) {
  nlohmann::json config = tiny_config("gemma3", 512);
  config["sliding_window"] = 300;
  config["num_hidden_layers"] = 3;
  const RandomModel m = random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
  const Isa best = available_isas(cpu_features()).back();
  const auto target = cpu(m, {.isa = best, .threads = 2});
  const auto tokens = random_tokens(700);
  const auto expected = reference_logits(m, KvFormat::int8, std::span(tokens).first(330));
  const auto one_shot = logits_of(*target, tokens, {512});
  expect_equal_bits(std::span(one_shot).first(expected.size()), expected, "the reference");
  expect_equal_bits(logits_of(*target, tokens, {1}), one_shot, "one by one");
}

TEST(FusedSteps, the_reference_gives_the_same_bits_for_the_fused_graph) {
  const RandomModel m = random_model(tiny_config("llama", 512), [](const WeightDecl&) { return WeightFormat::q4g128; });
  const auto tiled = cpu::tiled_in_memory(m.program, m.weights);
  ASSERT_TRUE(tiled);
  const Program fused = cpu_program(m.program, *tiled, KvFormat::int8);
  ASSERT_NE(fused.weight("layers.0.attn.qkv"), nullptr);
  const auto tokens = random_tokens(12);
  auto reference = make_reference(fused, *tiled);
  ASSERT_TRUE(reference) << reference.error().message;
  expect_equal_bits(logits_of(**reference, tokens, {12}), reference_logits(m, KvFormat::int8, tokens), "fused");
}

}  // namespace
}  // namespace onw
