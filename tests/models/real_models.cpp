// The real models against transformers, from the GGUF file to the logits: converted in FP32, run on the reference. Not
// part of tests_tests, because it wants the files: ONW_TEST_MODELS names their folder (tests/models/goldens_test.sh).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "kernels/isa.h"
#include "models/registry.h"
#include "store/model_folder.h"
#include "targets/reference/reference.h"
#include "tests/golden.h"

namespace onw::testing {
namespace {

constexpr double kTolerance = 1e-4;  // of the largest logit
constexpr double kNoiseFactor = 10;  // where transformers in FP32 is itself far from FP64: so many times that
constexpr int64_t kStepRows = 64;    // a vocabulary of 262,144 makes 64 MB of logits

Result<std::unique_ptr<Executable>> reference_for_folder(const std::filesystem::path& path) {
  auto folder = ModelFolder::open(path);
  RETURN_IF_ERROR(folder);
  auto program = build_program(folder->config());
  RETURN_IF_ERROR(program);
  const auto isa = active_isa();
  RETURN_IF_ERROR(isa);
  const auto owner = std::make_shared<const ModelFolder>(std::move(*folder));
  const WeightSet weights{.find = [owner](std::string_view name) { return owner->weight(name); }, .owner = owner};
  return make_reference(std::move(*program), weights, {.isa = *isa, .threads = 2});
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

// The largest difference at position `at`, of the log-sum-exp and of the stored logits.
double difference(const RealGolden& golden, int64_t at, std::span<const float> logits) {
  double worst = std::abs(log_sum_exp(logits) - golden.log_sum_exp[static_cast<size_t>(at)]);
  for (int64_t i = at * golden.top; i < (at + 1) * golden.top; ++i) {
    const auto n = static_cast<size_t>(i);
    const double ours = logits[static_cast<size_t>(golden.top_ids[n])];
    worst = std::isfinite(ours) ? std::max(worst, std::abs(ours - golden.top_logits[n])) : INFINITY;
  }
  return worst;
}

// Appends the difference of each position of one sequence, ids [begin, end) of the golden. Errors: the target's.
Result<void> compare_sequence(Executable& target, const RealGolden& golden, int64_t begin, int64_t end,
                              std::vector<double>& differences) {
  auto sequence = target.new_sequence();
  RETURN_IF_ERROR(sequence);
  Sequence* const sequences[] = {sequence->get()};
  const auto vocabulary = static_cast<size_t>(target.info().vocabulary);
  for (int64_t first = begin; first < end; first += kStepRows) {
    std::vector<Row> rows;
    for (int64_t i = first; i < std::min(end, first + kStepRows); ++i)
      rows.push_back(text_row(0, i - begin, golden.ids[static_cast<size_t>(i)], /*wants_logits=*/true));
    const auto outputs = target.run({sequences, rows}, CancelToken());
    RETURN_IF_ERROR(outputs);
    for (size_t r = 0; r < rows.size(); ++r)
      differences.push_back(
          difference(golden, first + static_cast<int64_t>(r), outputs->logits.subspan(r * vocabulary, vocabulary)));
    (*sequence)->commit(static_cast<int>(rows.size()));
  }
  return {};
}

struct RealModel {
  const char* golden;
  const char* file;
};

class RealModels : public ::testing::TestWithParam<RealModel> {};

TEST_P(RealModels, converted_in_fp32_have_the_logits_of_transformers) {
  const char* models = std::getenv("ONW_TEST_MODELS");
  if (models == nullptr) GTEST_SKIP() << "ONW_TEST_MODELS is not set (tools/fetch_models.py --into DIR)";
  const auto golden = read_real_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens" / GetParam().golden);
  ASSERT_TRUE(golden) << golden.error().message;
  const TempFolder folder;
  const auto done =
      convert(std::filesystem::path(models) / GetParam().file, folder / "model", {.format = WeightFormat::f32});
  ASSERT_TRUE(done) << done.error().message;
  const auto target = reference_for_folder(folder / "model");
  ASSERT_TRUE(target) << target.error().message;

  std::vector<double> differences;
  int64_t begin = 0;
  for (const int64_t length : golden->parts) {
    ASSERT_TRUE(compare_sequence(**target, *golden, begin, begin + length, differences));
    begin += length;
  }
  const double tolerance = kTolerance * *std::ranges::max_element(golden->top_logits);
  int64_t within = 0;
  for (size_t i = 0; i < differences.size(); ++i) {
    within += differences[i] <= tolerance;
    EXPECT_LE(differences[i], std::max(tolerance, kNoiseFactor * golden->noise[i])) << "position " << i;
  }
  std::ranges::sort(differences);
  fmt::print("{}: {} of {} positions within {} of the largest logit; relative error: median {:.1e}, worst {:.1e}\n",
             GetParam().file, within, begin, kTolerance, differences[differences.size() / 2] / tolerance * kTolerance,
             differences.back() / tolerance * kTolerance);
  EXPECT_GE(within, 500);
  EXPECT_GE(static_cast<double>(within), 0.99 * static_cast<double>(begin));
}

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         ::testing::Values(RealModel{"real-smollm2.safetensors", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                           RealModel{"real-gemma3-270m.safetensors", "gemma-3-270m-q4_k_m.gguf"}),
                         [](const auto& info) { return info.index == 0 ? "smollm2" : "gemma3_270m"; });

}  // namespace
}  // namespace onw::testing
