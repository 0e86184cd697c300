// Drafting on the CPU target, with real arithmetic, windows and states: the answer is the same to the bit with drafts
// and without.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "runtime/testing/engine_driver.h"
#include "tests/golden.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

// All steps take the same time by the clock that it moves, however many rows they have: then drafts pay, on whatever
// machine the test runs.
class EvenSteps final : public Executable {
 public:
  EvenSteps(std::unique_ptr<Executable> inner, double& clock) : inner_(std::move(inner)), clock_(clock) {}
  const ExecutableInfo& info() const override { return inner_->info(); }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return inner_->new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return inner_->need(tokens, sequences); }
  Cost cost(const StepShape&) const override { return {1e-3}; }
  bool mixes_prompt_and_decode() const override { return inner_->mixes_prompt_and_decode(); }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    clock_ += 600e-6;
    return inner_->run(step, cancel);
  }

 private:
  std::unique_ptr<Executable> inner_;
  double& clock_;
};

class DraftedFamily : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, DraftedFamily,
                         ::testing::Values("llama-g128", "gemma3-g64", "gemma4-g64", "qwen2-sliding-g64",
                                           "qwen3_5-g64"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// numerics-068
TEST_P(DraftedFamily, answers_the_same_with_drafts_and_without) {
  const TempFolder folder;
  const auto path =
      std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens" / (std::string(GetParam()) + ".safetensors");
  const auto golden = read_golden(path);
  ASSERT_TRUE(golden) << golden.error().message;
  ASSERT_TRUE(write_tiny_model(*golden, folder / "published"));
  ASSERT_TRUE(convert(folder / "published", folder / "model", {}));
  auto executable = load_executable(folder / "model", {.device = "CPU", .threads = 1});
  ASSERT_TRUE(executable) << executable.error().message;
  double clock = 0;
  const auto engine = Engine::create(std::make_unique<EvenSteps>(std::move(*executable), clock),
                                     {.seconds = [&clock] { return clock; }});
  ASSERT_TRUE(engine) << engine.error().message;

  // Two tokens that are far likelier than the others make a text that repeats itself, and at 2 is not to be foretold.
  const auto ask = [&](float temperature, bool drafts) {
    GenerateRequest request{
        .prompt = golden->ids,
        .sampling = {.temperature = temperature, .logit_bias = {{3, 50.0F}, {5, 50.0F}}, .seed = 11},
        .max_tokens = 60};
    request.drafts = drafts;
    return answer(**engine, std::move(request));
  };
  for (const float temperature : {0.0F, 2.0F}) {
    const Answer plain = ask(temperature, false), drafted = ask(temperature, true);
    EXPECT_EQ(drafted.tokens, plain.tokens) << "at " << temperature;
    EXPECT_EQ(plain.usage.drafted_tokens, 0);
    EXPECT_GT(drafted.usage.drafted_tokens, 0);
  }
}

}  // namespace
}  // namespace onw::testing
