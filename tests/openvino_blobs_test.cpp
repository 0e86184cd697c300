// The OpenVINO target with its compiled graphs in a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/temp_folder.h"
#include "targets/conformance_steps.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/testing.h"
#include "tests/random_model.h"
#include "tests/run_ids.h"

namespace onw::testing {
namespace {

namespace fs = std::filesystem;

fs::path beside_the_tests(const char* name) { return this_program().parent_path() / name; }

RandomModel small_model() {
  nlohmann::json config = tiny_config("llama", 320);
  config["num_hidden_layers"] = 2;
  return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
}

// How many graphs were compiled, and how many were there.
struct Counts {
  int compiled = 0, hits = 0;
};

OpenVinoOptions with_store(const fs::path& folder, std::string platform, Counts& counts) {
  OpenVinoOptions o{.exact = true, .block_rows = {1, 8}, .chunk_positions = 16, .threads = 2};
  o.isa = available_isas(cpu_features()).back();
  o.blobs = {.folder = folder,
             .child = {beside_the_tests("compile_child").string()},
             .model = "small",
             .weights_digest = "w",
             .platform = std::move(platform),
             .observer = [&counts](const openvino::CompileEvent& e) {
               if (e.ended) ++(e.hit ? counts.hits : counts.compiled);
             }};
  return o;
}

class WithOpenVinoBlobs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (openvino_runtime() == nullptr) GTEST_SKIP() << kNoOpenVino;
  }

  std::vector<float> logits(OpenVinoOptions options) const {
    options.runtime = openvino_runtime();
    const auto target = make_openvino(model_.program, model_.weights, options);
    EXPECT_TRUE(target) << target.error().message;
    if (!target) return {};
    const auto out = logits_in_segments(**target, some_tokens(**target, 30, 3), std::vector<int64_t>{13, 1});
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or(std::vector<float>());
  }

  RandomModel model_ = small_model();
  TempFolder folder_;
  Counts counts_;
};

// Three segments and the head, and attention over chunks of five lengths, each for two numbers of rows.
constexpr int kGraphs = 2 * (3 + 1 + 5);

TEST_F(WithOpenVinoBlobs, give_the_same_bits_as_graphs_that_were_just_compiled) {
  OpenVinoOptions options = with_store(folder_ / "blobs", "CPU", counts_);
  OpenVinoOptions plain = options;
  plain.blobs.reset();
  const auto expected = logits(plain);
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.compiled, kGraphs);
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.compiled, kGraphs);
  EXPECT_EQ(counts_.hits, kGraphs);
  for (const auto& item : fs::directory_iterator(folder_ / "blobs"))
    if (item.path().extension() == ".blob") std::ofstream(item.path()) << "not a blob";
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.compiled, 2 * kGraphs);
}

// The NPU's own plugin, with OpenVINO's CPU device in the NPU's place.
TEST_F(WithOpenVinoBlobs, go_through_the_NPU_plugin_and_change_no_bit) {
  const openvino::Properties cpu = {{"INFERENCE_PRECISION_HINT", "f32"}, {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"}};
  for (const auto& [key, value] : cpu) ASSERT_TRUE(openvino_runtime()->set_property("CPU", key, value));
  OpenVinoOptions options = with_store(folder_ / "blobs", "stand-in", counts_);
  options.openvino_device = "NPU";
  options.properties = {{"NPU_USE_NPUW", "YES"}, {"NPUW_DEVICES", "CPU"}, {"NPUW_ONLINE_PIPELINE", "NONE"}};
  options.blobs->settings = {{"CPU", cpu}};
  OpenVinoOptions plain = options;
  plain.blobs.reset();
  const auto expected = logits(plain);
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.hits, kGraphs);
}

class OpenVinoBlobs : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
};

// A compiled graph that its driver does not take any more is made again; one that never loads is compiled here.
TEST_F(OpenVinoBlobs, that_do_not_load_are_never_fatal) {
  TempFolder folder;
  Counts counts;
  OpenVinoOptions options = with_store(folder / "blobs", "GPU", counts);
  const auto runtime = openvino::Runtime::load(beside_the_tests("libfake_openvino.so"));
  ASSERT_TRUE(runtime);
  options.runtime = *runtime;
  options.openvino_device = "NPU";
  const RandomModel m = small_model();
  ASSERT_TRUE(make_openvino(m.program, m.weights, options));
  ::setenv("ONW_FAKE_OPENVINO", "import=fail", 1);
  const auto target = make_openvino(m.program, m.weights, options);
  EXPECT_TRUE(target) << target.error().message;
}

}  // namespace
}  // namespace onw::testing
