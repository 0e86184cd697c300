#include "convert/importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convert/convert.h"
#include "convert/test_models.h"
#include "quant/unpack.h"
#include "store/model_folder.h"

namespace onw {
namespace {

using ::testing::HasSubstr;
using testing::kTinyHidden;
using testing::kTinyInner;

// Every eighth input of one weight counts.
std::vector<float> every_eighth(int64_t inputs) {
  std::vector<float> counts(static_cast<size_t>(inputs), 1e-4f);
  for (size_t i = 0; i < counts.size(); i += 8) counts[i] = 3.0f;
  return counts;
}

std::string refusal(const TempFolder& folder, const std::string& name, const std::vector<float>& values) {
  folder.write("counts.safetensors",
               SafetensorsBytes().add_f32(name, {static_cast<int64_t>(values.size())}, values).bytes());
  const auto done = convert(folder.path() / "hf", folder.path() / "out",
                            {.format = WeightFormat::q4g32, .importance = folder.path() / "counts.safetensors"});
  return done ? "accepted" : done.error().message;
}

// Squared error of the inputs that count, and of the others.
struct Errors {
  double counting = 0, others = 0;
};
Errors errors_of(const TempFolder& folder, const std::filesystem::path& importance) {
  const auto out = folder.path() / (importance.empty() ? "plain" : "weighed");
  const auto done = convert(folder.path() / "hf", out, {.format = WeightFormat::q4g32, .importance = importance});
  EXPECT_TRUE(done) << (done ? "" : done.error().message);
  const auto model = ModelFolder::open(out);
  EXPECT_TRUE(model);
  const auto view = model->weight("layers.0.mlp.down");
  EXPECT_TRUE(view);
  Errors errors;
  for (const auto& w : testing::tiny_weights(false)) {
    if (w.ours != "layers.0.mlp.down") continue;
    const auto values = testing::tiny_values(w);
    std::vector<float> row(kTinyInner);
    for (int64_t o = 0; o < view->outputs; ++o) {
      dequantise_row(*view, o, row);
      for (int64_t i = 0; i < kTinyInner; ++i)
        (i % 8 == 0 ? errors.counting : errors.others) += std::pow(row[i] - values[o * kTinyInner + i], 2);
    }
  }
  return errors;
}

TEST(Importance, lowers_the_error_where_activations_are_large) {
  TempFolder folder;
  testing::write_tiny_folder(folder, "hf");
  folder.write("counts.safetensors",
               SafetensorsBytes().add_f32("layers.0.mlp.down", {kTinyInner}, every_eighth(kTinyInner)).bytes());
  const Errors plain = errors_of(folder, "");
  const Errors weighed = errors_of(folder, folder.path() / "counts.safetensors");
  EXPECT_LT(weighed.counting, 0.7 * plain.counting);
  EXPECT_GT(weighed.others, plain.others);
}

TEST(Importance, refuses_files_of_other_models_and_values_that_are_none) {
  TempFolder folder;
  testing::write_tiny_folder(folder, "hf");
  EXPECT_THAT(refusal(folder, "layers.7.mlp.down", std::vector<float>(kTinyInner, 1)), HasSubstr("named after"));
  EXPECT_THAT(refusal(folder, "layers.0.mlp.down", std::vector<float>(kTinyHidden, 1)), HasSubstr("96 inputs"));
  EXPECT_THAT(refusal(folder, "layers.0.mlp.down", std::vector<float>(kTinyInner, -1)), HasSubstr("negative"));
  EXPECT_THAT(refusal(folder, "layers.0.mlp.down", std::vector<float>(kTinyInner, NAN)), HasSubstr("not finite"));
  EXPECT_EQ(refusal(folder, "layers.0.mlp.down", std::vector<float>(kTinyInner, 0)), "accepted");
}

TEST(Importance, refuses_a_file_that_would_change_nothing) {
  TempFolder folder;
  testing::write_tiny_folder(folder, "hf");
  folder.write("counts.safetensors",
               SafetensorsBytes().add_f32("layers.0.mlp.down", {kTinyInner}, every_eighth(kTinyInner)).bytes());
  const auto with = [&](WeightFormat format) {
    const auto done = convert(folder.path() / "hf", folder.path() / std::string(name(format)),
                              {.format = format, .importance = folder.path() / "counts.safetensors"});
    return done ? "accepted" : done.error().message;
  };
  EXPECT_THAT(with(WeightFormat::q8g32), HasSubstr("would change nothing"));
  EXPECT_EQ(with(WeightFormat::q4g32), "accepted");
}

}  // namespace
}  // namespace onw
