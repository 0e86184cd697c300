// A model folder, opened and answering: the way that chat and server take, on tiny models that convert has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "runtime/testing/engine_driver.h"
#include "targets/openvino/testing.h"
#include "targets/rest.h"
#include "tests/golden.h"
#include "tests/run_ids.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class LoadedModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path =
        std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens" / (std::string(GetParam()) + ".safetensors");
    const auto golden = read_golden(path);
    ASSERT_TRUE(golden) << golden.error().message;
    ASSERT_TRUE(write_tiny_model(*golden, folder_ / "published"));
    const auto done = convert(folder_ / "published", folder_ / "model", {});
    ASSERT_TRUE(done) << done.error().message;
    prompt_ = golden->ids;
  }

  std::unique_ptr<Engine> load(const std::string& device) const {
    auto engine = Engine::load(folder_ / "model", {.device = device, .threads = 2});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  GenerateRequest request(int64_t max_tokens) const {
    return {.prompt = prompt_, .sampling = {.temperature = 0.8F, .top_p = 0.95F, .seed = 11}, .max_tokens = max_tokens};
  }

  TempFolder folder_;
  std::vector<int32_t> prompt_;
};

INSTANTIATE_TEST_SUITE_P(Models, LoadedModel,
                         ::testing::Values("llama-g128", "gemma3-g64", "gemma4-g128", "qwen2-g64", "qwen3_5-g64"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(LoadedModel, answers_the_same_on_the_cpu_and_on_the_quantised_reference) {
  const auto cpu = load("CPU"), reference = load("reference");
  ASSERT_TRUE(cpu && reference);
  const Answer fast = answer(*cpu, request(24)), slow = answer(*reference, request(24));
  EXPECT_EQ(fast.tokens.size(), 24U);
  EXPECT_EQ(fast.tokens, slow.tokens);
}

class EveryLoadedFamily : public LoadedModel {};

INSTANTIATE_TEST_SUITE_P(Models, EveryLoadedFamily,
                         ::testing::Values("llama-g64", "qwen2-g64", "qwen2-sliding-g64", "qwen3-g64", "granite-g64",
                                           "granitemoehybrid-g64", "gemma3-g64", "gemma4-g64", "lfm2-g64",
                                           "lfm2_moe-g64", "qwen3_5-g64", "qwen3_5_moe-g64"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// numerics-061
TEST_P(EveryLoadedFamily, takes_a_prompt_of_one_token_and_refuses_one_of_none) {
  for (const char* device : {"CPU", "reference"}) {
    const auto engine = load(device);
    ASSERT_TRUE(engine);
    GenerateRequest one = request(5);
    one.prompt.resize(1);
    EXPECT_EQ(answer(*engine, std::move(one)).tokens.size(), 5U);
    const auto none = engine->submit({.prompt = {}});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::invalid_argument);
  }
}

// Models of which OpenVINO's devices compute the products, and the host the rest: states and experts.
class SharedWithTheHost : public LoadedModel {};

INSTANTIATE_TEST_SUITE_P(WithOpenVino, SharedWithTheHost,
                         ::testing::Values("lfm2-g64", "qwen3_5-g64", "qwen3_moe-g64", "gpt_oss-g64"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('-'));
                         });

TEST_P(SharedWithTheHost, answer_on_openvino_and_go_on_from_what_they_know) {
  EXPECT_THAT(open_model(folder_ / "model").value().folder->engine().runs_on, Contains("openvino:CPU"));
  if (openvino_runtime() == nullptr) GTEST_SKIP() << kNoOpenVino;
  const auto engine = load("openvino:CPU");
  ASSERT_TRUE(engine);
  const Answer first = answer(*engine, request(20)), again = answer(*engine, request(20));
  EXPECT_EQ(first.tokens.size(), 20U);
  EXPECT_EQ(again.tokens.size(), 20U);
  EXPECT_GT(again.usage.reused_tokens, 0);
}

// numerics-066, with real arithmetic: several prompts in one step, and states that are reused.
TEST_P(LoadedModel, answers_the_same_whatever_runs_beside_it_and_whatever_is_reused) {
  const auto alone = load("CPU"), busy = load("CPU");
  ASSERT_TRUE(alone && busy);
  const auto expected = answer(*alone, request(24)).tokens;
  std::vector<std::unique_ptr<Generation>> neighbours;
  for (size_t i = 0; i < 3; ++i) {
    GenerateRequest noise = request(40);
    noise.prompt.resize(2 + 3 * i);
    noise.sampling.seed = i;
    neighbours.push_back(busy->submit(std::move(noise)).value());
  }
  EXPECT_EQ(answer(*busy, request(24)).tokens, expected);
  const Answer again = answer(*busy, request(24));
  EXPECT_GT(again.usage.reused_tokens, 0);
  EXPECT_EQ(again.tokens, expected);
}

// A folder made for another device class: its weights lie in rows, and are laid out anew once.
TEST_P(LoadedModel, answers_the_same_from_weights_that_were_laid_out_anew) {
  const TempFolder cache;
  ASSERT_EQ(setenv("ONW_CACHE", cache.path().c_str(), 1), 0);
  const auto done = convert(folder_ / "published", folder_ / "rows", {.made_for = "npu"});
  ASSERT_TRUE(done) << done.error().message;
  int64_t laid_out = 0;
  const auto load_rows = [&] {
    laid_out = 0;
    auto engine = Engine::load(folder_ / "rows", {.threads = 2, .load_observer = [&](int64_t bytes, int64_t) {
                                                    laid_out = bytes;
                                                    return true;
                                                  }});
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  };
  const auto first = answer(*load_rows(), request(24)).tokens;
  EXPECT_GT(laid_out, 0);
  EXPECT_EQ(answer(*load_rows(), request(24)).tokens, first);
  EXPECT_EQ(laid_out, 0);
  const auto reference = Engine::load(folder_ / "rows", {.device = "reference", .threads = 2});
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(answer(**reference, request(24)).tokens, first);
}

// Formats agree, so the two folders are one model: every logit, to the bit.
TEST_P(LoadedModel, computes_the_same_bits_from_rows_and_from_tiles) {
  const TempFolder cache;
  ASSERT_EQ(setenv("ONW_CACHE", cache.path().c_str(), 1), 0);
  ASSERT_TRUE(convert(folder_ / "published", folder_ / "rows", {.made_for = "npu"}));
  const auto rows = open_model(folder_ / "rows"), tiles = open_model(folder_ / "model");
  ASSERT_TRUE(rows && tiles);
  for (const WeightDecl& w : tiles->program.weights) {
    EXPECT_EQ(rows->program.weight(w.name)->format, w.format) << w.name;
    EXPECT_EQ(rows->folder->weight(w.name)->layout, Layout::rows) << w.name;
  }
  const auto logits = [&](const char* folder) {
    const auto target = load_executable(folder_ / folder, {.threads = 2});
    EXPECT_TRUE(target) << target.error().message;
    return logits_in_segments(**target, prompt_, std::vector<int64_t>{7, 1}).value();
  };
  const std::vector<float> expected = logits("model"), first = logits("rows"), mapped = logits("rows");
  ASSERT_EQ(first.size(), expected.size());
  EXPECT_EQ(std::memcmp(first.data(), expected.data(), expected.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(mapped.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

// Bench times steps of weights that lie where they will stay.
TEST_P(LoadedModel, tells_whether_its_weights_are_still_being_moved) {
  auto target = load_executable(folder_ / "model", {.device = "CPU", .threads = 1});
  ASSERT_TRUE(target) << target.error().message;
  ASSERT_NE(dynamic_cast<Rests*>(target->get()), nullptr);
  rest_until_done(**target);
  EXPECT_FALSE(upkeep(**target).more_to_come);
}

TEST(Load, names_the_device_that_does_not_exist_and_those_that_do) {
  const auto refused = load_executable("nowhere", {.device = "toaster"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unsupported);
  EXPECT_THAT(refused.error().message,
              ::testing::AllOf(HasSubstr("toaster"), HasSubstr("CPU"), HasSubstr("reference")));
}

TEST(Load, names_the_folder_that_is_missing) {
  const auto refused = load_executable("no/such/folder", {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("no/such/folder"));
}

}  // namespace
}  // namespace onw::testing
