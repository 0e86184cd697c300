#include "targets/reference/npu_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/random_model.h"

namespace onw {
namespace {

testing::RandomModel model(std::string_view family) {
  return testing::random_model(testing::tiny_config(family, 320),
                               [](const WeightDecl&) { return WeightFormat::q8g64; });
}

TEST(NpuCheck, tells_every_layer_and_the_head) {
  for (const char* family : {"llama", "qwen3", "gemma3", "gemma4", "lfm2", "qwen3_5"}) {
    const auto m = model(family);
    const auto layers = check_npu(m.program, m.weights, {1, 2, 3});
    ASSERT_TRUE(layers) << family << ": " << layers.error().message;
    ASSERT_GE(layers->size(), static_cast<size_t>(m.program.layers)) << family;
    EXPECT_EQ(layers->front().name, std::string_view(family) == "gemma4" ? "inputs" : "L00");
    EXPECT_EQ(layers->back().name, "head");
    for (const NpuLayer& l : *layers) {
      EXPECT_GT(l.largest, 0) << family << " " << l.name;
      EXPECT_LT(l.largest, 30000) << family << " " << l.name << ": a mask is no value";
      EXPECT_EQ(l.overflows, 0) << family << " " << l.name;
      EXPECT_GT(l.relative_rms, 0) << family << " " << l.name << ": FP16 rounds";
      EXPECT_LT(l.relative_rms, 0.02) << family << " " << l.name;
    }
  }
}

TEST(NpuCheck, counts_what_is_beyond_FP16) {
  auto m = model("llama");
  m.program.embedding_scale = 1e7;
  const auto layers = check_npu(m.program, m.weights, {1, 2, 3});
  ASSERT_TRUE(layers) << layers.error().message;
  EXPECT_GT(layers->front().overflows, 0);
  EXPECT_TRUE(std::isinf(layers->front().relative_rms));
}

}  // namespace
}  // namespace onw
