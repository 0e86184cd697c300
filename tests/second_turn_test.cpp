// A second turn of models whose state cannot be cut back (windows, short convolutions, the gated delta rule), with real
// arithmetic: what was computed at a branch point is not computed again, and the answer is that of a fresh start.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "runtime/testing/engine_driver.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

// The parameter is a family. Of gemma3's layers most see a window, some everything.
class SecondTurn : public ::testing::TestWithParam<const char*> {
 protected:
  SecondTurn()
      : model_(random_model(tiny_config(GetParam(), 320), [](const WeightDecl&) { return WeightFormat::q4g128; })),
        tiled_(*cpu::tiled_in_memory(model_.program, model_.weights)) {}

  std::unique_ptr<Engine> engine() const {
    auto executable = make_cpu(model_.program, tiled_, {.threads = 1, .max_step_rows = 64});
    EXPECT_TRUE(executable) << executable.error().message;
    EXPECT_FALSE((*executable)->info().truncates_freely);
    auto made = Engine::create(std::move(*executable), {.memory_bytes = int64_t{1} << 30});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  std::vector<int32_t> tokens(int64_t count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<int32_t> drawn(static_cast<size_t>(count));
    for (int32_t& t : drawn) t = static_cast<int32_t>(random() % static_cast<uint32_t>(model_.program.vocabulary));
    return drawn;
  }

  static GenerateRequest request(std::vector<int32_t> prompt, std::vector<int64_t> branches) {
    return {.prompt = std::move(prompt),
            .sampling = {.temperature = 0.8F, .seed = 5},
            .max_tokens = 12,
            .branch_points = std::move(branches)};
  }

  RandomModel model_;
  WeightSet tiled_;
};

// The template takes the thoughts out of the first answer, so that the second prompt parts from the first's state where
// the generation prompt began: in the page of 256 tokens that the windows have left behind by then.
TEST_P(SecondTurn, goes_back_to_where_the_generation_prompt_began_and_computes_the_rest) {
  const auto question = tokens(240, 1);
  auto first = question;
  first.insert(first.end(), {1, 2, 3});  // the generation prompt
  auto second = question;
  for (const int32_t token : tokens(40, 2)) second.push_back(token);
  const auto expected = answer(*engine(), request(second, {})).tokens;

  const auto with = engine();
  GenerateRequest thinking = request(first, {200, 240});
  thinking.max_tokens = 130;
  answer(*with, std::move(thinking));
  const Answer got = answer(*with, request(second, {240, 275}));
  EXPECT_EQ(got.usage.reused_tokens, 240);
  EXPECT_EQ(got.tokens, expected);

  // An edited last message, from where its text began.
  auto edited = std::vector<int32_t>(question.begin(), question.begin() + 200);
  for (const int32_t token : tokens(30, 3)) edited.push_back(token);
  const auto fresh = answer(*engine(), request(edited, {})).tokens;
  const Answer again = answer(*with, request(edited, {}));
  EXPECT_EQ(again.usage.reused_tokens, 200);
  EXPECT_EQ(again.tokens, fresh);
}

TEST_P(SecondTurn, without_branch_points_starts_anew) {
  const auto question = tokens(240, 1);
  auto second = question;
  for (const int32_t token : tokens(40, 2)) second.push_back(token);
  const auto without = engine();
  GenerateRequest thinking = request(question, {});
  thinking.prompt.push_back(1);
  thinking.max_tokens = 130;
  answer(*without, std::move(thinking));
  EXPECT_LT(answer(*without, request(second, {})).usage.reused_tokens, 240);
}

TEST_P(SecondTurn, goes_on_where_the_answer_ended_when_the_prompt_repeats_it) {
  const auto with = engine();
  auto prompt = tokens(240, 1);
  const Answer first = answer(*with, request(prompt, {230}));
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  prompt.insert(prompt.end(), {4, 5, 6});
  const Answer second = answer(*with, request(prompt, {}));
  EXPECT_EQ(second.usage.reused_tokens, 240 + 12 - 1);
  EXPECT_EQ(second.tokens, answer(*engine(), request(prompt, {})).tokens);
}

INSTANTIATE_TEST_SUITE_P(StatesThatCannotGoBack, SecondTurn,
                         ::testing::Values("gemma3", "gemma4", "qwen3_5", "qwen3_5_moe", "lfm2_moe"));

}  // namespace
}  // namespace onw::testing
