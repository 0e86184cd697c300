#include "runtime/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

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

TEST(SelfCheck, is_made_once_a_key_and_its_verdict_kept) {
  const TempFolder cache;
  FakeExecutable good, bad(always(7)), cpu;
  const KeptCheck kept(cache.path(), "model a, OpenVINO 1"), other(cache.path(), "model a, OpenVINO 2");
  EXPECT_FALSE(check_once(kept, bad, cpu, "NPU"));
  const auto steps = bad.shared()->counters.steps;
  EXPECT_FALSE(check_once(kept, bad, cpu, "NPU"));
  EXPECT_EQ(bad.shared()->counters.steps, steps) << "known without another try";
  EXPECT_TRUE(check_once(other, good, cpu, "NPU")) << "another version is another matter";
  EXPECT_TRUE(other.read());
}

TEST(SelfCheck, is_made_anew_where_the_file_is_damaged_or_cannot_be_written) {
  const TempFolder cache;
  const KeptCheck kept(cache.path(), "a");
  kept.write({.rows = 16, .mean_kl = 0.5, .same_first = 9});
  ASSERT_TRUE(kept.read());
  EXPECT_EQ(kept.read()->same_first, 9);
  for (const char* text : {"", "{", "[]", R"({"rows": 16})", R"({"rows": 0, "same_first": 0, "mean_kl": 0})",
                           R"({"rows": 16, "same_first": 99, "mean_kl": 0})"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(cache.path()))
      if (file.is_regular_file()) std::ofstream(file.path()) << text;
    EXPECT_FALSE(kept.read()) << text;
  }
  KeptCheck("/proc/none", "a").write({.rows = 16});
  EXPECT_FALSE(KeptCheck("/proc/none", "a").read());
}

// A device that fails while it is checked is no verdict about its numbers: the next start tries again.
TEST(SelfCheck, that_could_not_be_made_is_not_kept) {
  const TempFolder cache;
  FakeExecutable cpu,
      lost({.before_step = [](const Step&, const CancelToken&) { return error(Code::internal, "DEVICE_LOST"); }});
  const KeptCheck kept(cache.path(), "a");
  const auto failed = check_once(kept, lost, cpu, "NPU");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message,
              HasSubstr("its first rows, which are compared with the CPU's, fail: DEVICE_LOST"));
  EXPECT_FALSE(kept.read());
}

}  // namespace
}  // namespace onw::testing
