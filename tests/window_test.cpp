// A sliding window of n sees n keys: a token moves the rows that see it, and no others.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "passes/quantise.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/reference/reference.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

constexpr int64_t kTokens = 16;

// One layer, which slides: what a row knows of other tokens it knows through the window.
RandomModel one_layer(const char* family, int64_t window) {
  nlohmann::json config = tiny_config(family, 320);
  config.update({{"num_hidden_layers", 1},
                 {"sliding_window", window},
                 {"sliding_window_pattern", 6},
                 {"use_sliding_window", true},
                 {"max_window_layers", 0}});
  return random_model(config, [](const WeightDecl&) { return WeightFormat::f32; });
}

std::vector<float> logits(Executable& target, const std::vector<int32_t>& tokens) {
  auto sequence = target.new_sequence();
  EXPECT_TRUE(sequence);
  std::vector<Row> rows;
  for (int64_t i = 0; i < kTokens; ++i) rows.push_back(text_row(0, i, tokens[static_cast<size_t>(i)], true));
  Sequence* const sequences[] = {sequence->get()};
  const auto out = target.run({sequences, rows}, CancelToken());
  EXPECT_TRUE(out) << out.error().message;
  return {out->logits.begin(), out->logits.end()};
}

void expect_window(Executable& target, int64_t window) {
  const auto vocabulary = static_cast<size_t>(target.info().vocabulary);
  std::vector<int32_t> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(7 * i % 50);
  const auto plain = logits(target, tokens);
  for (const int64_t changed : {int64_t{0}, int64_t{2}, int64_t{7}}) {
    auto other = tokens;
    other[static_cast<size_t>(changed)] = 90;
    const auto moved = logits(target, other);
    for (int64_t row = 0; row < kTokens; ++row) {
      const size_t at = static_cast<size_t>(row) * vocabulary;
      const bool equal = std::memcmp(&plain[at], &moved[at], vocabulary * sizeof(float)) == 0;
      EXPECT_EQ(!equal, row >= changed && row - changed < window) << "token " << changed << ", row " << row;
    }
  }
}

// context-050
TEST(Window, of_n_sees_the_row_itself_and_the_n_minus_1_before_it) {
  for (const char* family : {"gemma3", "qwen2"})
    for (const int64_t window : {1, 4, 5}) {
      const RandomModel m = one_layer(family, window);
      const auto reference = make_reference(m.program, m.weights, {.threads = 2});
      ASSERT_TRUE(reference) << reference.error().message;
      expect_window(**reference, window);
      const auto cpu = make_cpu(m.program, *cpu::tiled_in_memory(m.program, m.weights), {.threads = 2});
      ASSERT_TRUE(cpu) << cpu.error().message;
      expect_window(**cpu, window);
    }
}

}  // namespace
}  // namespace onw::testing
