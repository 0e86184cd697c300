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
using ::testing::HasSubstr;
using ::testing::Not;

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

// As exact options set them for graphs; an import takes no properties.
const openvino::Properties kExactCpu = {{"INFERENCE_PRECISION_HINT", "f32"}, {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"}};

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
  for (const auto& [key, value] : kExactCpu) ASSERT_TRUE(openvino_runtime()->set_property("CPU", key, value));
  OpenVinoOptions options = with_store(folder_ / "blobs", "stand-in", counts_);
  options.openvino_device = "NPU";
  options.properties = {{"NPU_USE_NPUW", "YES"}, {"NPUW_DEVICES", "CPU"}, {"NPUW_ONLINE_PIPELINE", "NONE"}};
  options.blobs->settings = {{"CPU", kExactCpu}};
  OpenVinoOptions plain = options;
  plain.blobs.reset();
  const auto expected = logits(plain);
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.hits, kGraphs);
}

// OpenVINO's CPU device keeps a graph of INT8 weights without them, and takes it back from a file alone that also holds
// the small constants, which ours does not: found out once, told in the record, and then each graph is kept as a whole.
TEST_F(WithOpenVinoBlobs, without_weights_that_do_not_load_are_kept_as_a_whole_and_give_the_same_bits) {
  for (const auto& [key, value] : kExactCpu) ASSERT_TRUE(openvino_runtime()->set_property("CPU", key, value));
  nlohmann::json config = tiny_config("llama", 512);
  config["num_hidden_layers"] = 1;
  model_ = random_model(config, [](const WeightDecl&) { return WeightFormat::q8c; });
  OpenVinoOptions options = with_store(folder_ / "blobs", "GPU", counts_);  // whose first route is without weights
  options.block_rows = {4};
  options.max_context = 40;
  OpenVinoOptions plain = options;
  plain.blobs.reset();
  const auto expected = logits(plain);
  EXPECT_TRUE(same_bits(expected, logits(options)));
  int refused = 0;
  const auto records = openvino::BlobStore(folder_ / "blobs").entries();
  ASSERT_TRUE(records);
  for (const openvino::BlobRecord& record : *records) {
    if (record.route != "without weights") continue;
    ++refused;
    EXPECT_EQ(record.ended, openvino::Ended::refused);
    EXPECT_THAT(record.message, HasSubstr("what it keeps without weights does not load"));
  }
  EXPECT_GT(refused, 0);
  const int compiled = counts_.compiled;
  EXPECT_TRUE(same_bits(expected, logits(options)));
  EXPECT_EQ(counts_.compiled, compiled);
}

// On a library that does as it is told.
class OpenVinoBlobs : public ::testing::Test {
 protected:
  OpenVinoBlobs() {
    const auto runtime = openvino::Runtime::load(beside_the_tests("libfake_openvino.so"));
    EXPECT_TRUE(runtime);
    options_.runtime = runtime.value_or(nullptr);
    options_.openvino_device = "NPU";
    options_.block_rows = {1};
    options_.max_context = 40;
  }
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
  static void told(const char* script) { ::setenv("ONW_FAKE_OPENVINO", script, 1); }

  openvino::BlobUse make() {
    options_.blobs->use = std::make_shared<openvino::BlobUse>();
    const auto target = make_openvino(model_.program, model_.weights, options_);
    EXPECT_TRUE(target) << target.error().message;
    return *options_.blobs->use;
  }

  RandomModel model_ = small_model();
  TempFolder folder_;
  Counts counts_;
  OpenVinoOptions options_ = with_store(folder_ / "blobs", "GPU", counts_);
};

// A compiled graph that its driver does not take any more is made again; one that never loads is compiled here, from
// then on without another try in the store. One sentence tells of all of them.
TEST_F(OpenVinoBlobs, that_do_not_load_are_never_fatal_and_told_once) {
  EXPECT_EQ(describe(make()), "");
  told("import=fail");
  const openvino::BlobUse use = make();
  EXPECT_GT(use.unloadable, 3);
  const std::string all = std::to_string(use.unloadable);
  EXPECT_THAT(describe(use), HasSubstr(all + " of " + all + " compiled graphs do not load (OpenVINO"));
  counts_ = {};
  EXPECT_EQ(make().unloadable, use.unloadable);
  EXPECT_EQ(counts_.compiled, 0) << "nobody compiles again what has shown not to load";
  told("");
  options_.blobs->again = true;
  EXPECT_EQ(describe(make()), "");
}

// Whoever compiles ahead wants to know that nothing of it will load.
TEST_F(OpenVinoBlobs, that_do_not_load_are_an_error_where_they_must_be_kept) {
  told("import=fail");
  options_.blobs->must_store = true;
  const auto target = make_openvino(model_.program, model_.weights, options_);
  ASSERT_FALSE(target);
  EXPECT_THAT(target.error().message, HasSubstr("compiles, but does not load: OpenVINO"));
}

TEST_F(OpenVinoBlobs, that_no_disk_takes_are_told_once_with_what_helps) {
  options_.blobs->folder = "/proc/no/such/place";
  const openvino::BlobUse use = make();
  EXPECT_EQ(use.unkept, static_cast<int>(use.records.size()));
  const std::string text = describe(use);
  EXPECT_THAT(text, HasSubstr(std::to_string(use.unkept) + " of "));
  EXPECT_THAT(text, HasSubstr("are not kept (/proc/no/such/place: cannot make the folder"));
  EXPECT_THAT(text, HasSubstr("Let ONW_CACHE name a folder that can be written"));
  EXPECT_THAT(text, Not(HasSubstr("Free space"))) << "there may be plenty";
}

}  // namespace
}  // namespace onw::testing
