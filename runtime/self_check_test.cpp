#include "runtime/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/digest.h"
#include "base/temp_folder.h"
#include "runtime/testing/fake_executable.h"

namespace onw::testing {
namespace {

using ::testing::HasSubstr;

// A device that answers `token` after everything.
FakeOptions always(int32_t token) {
  FakeOptions options;
  for (int32_t i = 0; i < options.vocabulary; ++i) options.follows[i] = token;
  return options;
}

TEST(SelfCheck, takes_a_device_that_computes_the_same) {
  FakeExecutable device, cpu;
  const auto check = compare_first_rows(device, cpu);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->rows, 16);
  EXPECT_EQ(check->same_first, 16);
  EXPECT_EQ(check->mean_kl, 0);
  EXPECT_TRUE(judge(*check, "NPU"));
  EXPECT_EQ(device.shared()->counters.steps, 5) << "one of many rows, and single ones";
  EXPECT_EQ(device.shared()->counters.sequences, 0) << "nothing stays";
}

// npu-083
TEST(SelfCheck, refuses_a_device_that_computes_something_else_and_says_what_to_do) {
  FakeExecutable device(always(7)), cpu;
  const auto check = compare_first_rows(device, cpu);
  ASSERT_TRUE(check);
  const auto refused = judge(*check, "NPU");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::numerics);
  EXPECT_THAT(refused.error().message, HasSubstr("the NPU computes something else than the CPU (KL "));
  EXPECT_THAT(refused.error().message, HasSubstr("Update the driver and OpenVINO"));
}

// Each bound holds alone.
TEST(SelfCheck, looks_at_the_distance_and_at_the_first_tokens) {
  EXPECT_TRUE(judge({.rows = 16, .mean_kl = 0.19, .same_first = 12}, "NPU"));
  EXPECT_FALSE(judge({.rows = 16, .mean_kl = 0.21, .same_first = 16}, "NPU"));
  EXPECT_FALSE(judge({.rows = 16, .mean_kl = 0.01, .same_first = 11}, "NPU"));
  EXPECT_FALSE(judge({.rows = 16, .mean_kl = std::numeric_limits<double>::quiet_NaN(), .same_first = 16}, "NPU"));
}

// A store with the records of two compiled graphs.
class KeptSelfCheck : public ::testing::Test {
 protected:
  KeptSelfCheck() {
    add("a");
    add("b");
  }

  // As if it had just been compiled.
  void add(const std::string& key) const {
    EXPECT_TRUE(store_.try_lock(key));
    std::ofstream(store_.partial(key)) << "blob";
    const auto added = store_.add({.key = key, .segment = "body.0", .bytes = 4, .digest = sha256_hex("blob")});
    EXPECT_TRUE(added) << added.error().message;
  }

  TempFolder folder_;
  openvino::BlobStore store_{folder_ / "blobs"};
  const KeptCheck kept_{store_, {"a", "b"}};
  FakeExecutable good_, bad_{always(7)}, cpu_;
};

TEST_F(KeptSelfCheck, is_made_once_and_its_verdict_lies_with_every_graph) {
  EXPECT_FALSE(check_once(kept_, bad_, cpu_, "NPU"));
  const auto steps = bad_.shared()->counters.steps;
  EXPECT_FALSE(check_once(kept_, bad_, cpu_, "NPU"));
  EXPECT_EQ(bad_.shared()->counters.steps, steps) << "known without another try";
  for (const char* key : {"a", "b"}) {
    ASSERT_TRUE(store_.find(key)->self_check);
    EXPECT_FALSE(store_.find(key)->self_check->passed);
    EXPECT_EQ(store_.find(key)->self_check->rows, 16);
  }
}

TEST_F(KeptSelfCheck, is_renewed_where_one_graph_was_made_anew) {
  EXPECT_FALSE(check_once(kept_, bad_, cpu_, "NPU"));
  add("b");
  EXPECT_FALSE(kept_.read());
  EXPECT_TRUE(check_once(kept_, good_, cpu_, "NPU"));
  EXPECT_TRUE(store_.find("a")->self_check->passed) << "of the other graph, too";
  ASSERT_TRUE(kept_.read());
  EXPECT_EQ(kept_.read()->same_first, 16);
}

TEST_F(KeptSelfCheck, is_made_anew_where_a_verdict_is_damaged_or_cannot_be_kept) {
  ASSERT_TRUE(check_once(kept_, good_, cpu_, "NPU"));
  ASSERT_TRUE(kept_.read());
  const auto record = folder_ / "blobs/a.json";
  std::ifstream in(record);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (const char* rows : {"0", "\"many\"", "-3", "1e30", "null"}) {
    std::string damaged = whole;
    damaged.replace(damaged.find("\"rows\": 16"), 10, std::string("\"rows\": ") + rows);
    std::ofstream(record) << damaged;
    EXPECT_FALSE(kept_.read()) << rows;
  }
  const KeptCheck nowhere(openvino::BlobStore("/proc/none"), {"a"});
  nowhere.write({.rows = 16}, true);
  EXPECT_FALSE(nowhere.read());
  EXPECT_FALSE(KeptCheck(store_, {}).read()) << "of no graph there is no verdict";
}

TEST_F(KeptSelfCheck, has_speeds_beside_it_of_tokens_and_of_prompts) {
  ASSERT_TRUE(check_once(kept_, good_, cpu_, "NPU"));
  EXPECT_EQ(kept_.speeds(), Speeds());
  for (const Speeds& s : {Speeds{.prompts = StepSeconds{.02, .002}},
                          Speeds{.tokens = StepSeconds{.2, .1}, .prompts = StepSeconds{.02, .002}}}) {
    kept_.note_speeds(s);
    EXPECT_EQ(kept_.speeds(), s);
    EXPECT_TRUE(kept_.read()) << "the verdict stays";
  }
  kept_.note_speeds({});
  EXPECT_EQ(kept_.speeds(), Speeds());
}

// A device that fails while it is checked is no verdict about its numbers: the next start tries again.
TEST_F(KeptSelfCheck, that_could_not_be_made_is_not_kept) {
  FakeExecutable lost({.before_step = [](const Step&, const CancelToken&) { return error(Code::internal, "LOST"); }});
  const auto failed = check_once(kept_, lost, cpu_, "NPU");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("its first rows, which are compared with the CPU's, fail: LOST"));
  CancelToken cancelled;
  cancelled.cancel();
  EXPECT_EQ(check_once(kept_, good_, cpu_, "NPU", cancelled).error().code, Code::cancelled);
  EXPECT_FALSE(kept_.read());
}

}  // namespace
}  // namespace onw::testing
