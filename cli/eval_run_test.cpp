#include "cli/eval_run.h"

#include <gmock/gmock.h>

#include "runtime/testing/fake_executable.h"

namespace onw::cli {
namespace {

std::shared_ptr<Executable> fake() { return std::make_shared<onw::testing::FakeExecutable>(); }

const std::vector<int32_t> kIds = {1, 5, 9, 13, 2, 6, 10, 3, 7, 11, 60};

std::vector<float> logits(int64_t window, int rows_per_step) {
  std::vector<float> all;
  const auto source = executable_logits(fake());
  EvalRun run{.ids = kIds, .window = window, .rows_per_step = rows_per_step};
  run.sink = [&](std::span<const float> l) -> Result<void> {
    all.insert(all.end(), l.begin(), l.end());
    return {};
  };
  const auto summary = run_eval(*source, nullptr, run);
  EXPECT_TRUE(summary.has_value());
  EXPECT_EQ(summary->predictions,
            static_cast<int64_t>(kIds.size()) - (static_cast<int64_t>(kIds.size()) + window - 1) / window);
  return all;
}

TEST(EvalRun, logits_do_not_depend_on_the_rows_of_a_step) {
  const auto whole = logits(100, 64);
  EXPECT_EQ(whole.size(), kIds.size() * 64);
  EXPECT_EQ(logits(100, 1), whole);
  EXPECT_EQ(logits(100, 4), whole);
}

TEST(EvalRun, each_window_begins_anew) {
  const auto windows = logits(4, 3);
  const auto whole = logits(100, 64);
  EXPECT_EQ(std::vector(windows.begin(), windows.begin() + 4 * 64), std::vector(whole.begin(), whole.begin() + 4 * 64));
  EXPECT_NE(std::vector(windows.begin() + 4 * 64, windows.begin() + 5 * 64),
            std::vector(whole.begin() + 4 * 64, whole.begin() + 5 * 64));
}

TEST(EvalRun, a_model_agrees_with_itself) {
  const auto source = executable_logits(fake());
  const auto other = executable_logits(fake());
  const auto summary = run_eval(*source, other.get(), {.ids = kIds, .window = 100, .rows_per_step = 4});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->comparisons, static_cast<int64_t>(kIds.size()));
  EXPECT_EQ(summary->max_kl, 0);
  EXPECT_EQ(summary->top1_agreement, 1);
}

TEST(EvalRun, names_an_id_beyond_the_vocabulary) {
  const auto source = executable_logits(fake());
  const std::vector<int32_t> ids = {1, 64};
  const auto summary = run_eval(*source, nullptr, {.ids = ids, .window = 100});
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, ::testing::HasSubstr("id number 1 is 64, but the vocabulary has 64"));
}

}  // namespace
}  // namespace onw::cli
