// The conformance tests judged: a fake that keeps every promise passes, and each broken promise is noticed.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/testing/broken_fake.h"
#include "runtime/testing/fake_executable.h"
#include "targets/conformance.h"

namespace onw::testing {
namespace {

ConformanceSubject fake_subject(const std::string& name, const FakeOptions& options, int64_t tokens = 300) {
  return {.name = name, .make = [options] { return std::make_unique<FakeExecutable>(options); }, .tokens = tokens};
}

const bool kRegistered[] = {
    register_conformance(fake_subject("FakeConformance", {})),
    register_conformance(fake_subject("FakeConformance_ring", {.memory = FakeMemory::ring, .ring_slack = 40})),
    register_conformance(fake_subject("FakeConformance_recurrent", {.memory = FakeMemory::recurrent})),
    register_conformance(fake_subject("FakeConformance_unmixed", {.max_step_rows = 16, .mixes = false}, 30)),
};

// Whether `check` fails on a fake with `flaw`.
bool notices(const ConformanceCheck& check, Flaw flaw) {
  const ConformanceSubject subject = {
      .name = "broken", .make = [flaw] { return std::make_unique<BrokenExecutable>(flaw); }, .tokens = 40};
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    check.run(subject);
  }
  for (int i = 0; i < results.size(); ++i)
    if (results.GetTestPartResult(i).failed()) return true;
  return false;
}

TEST(Conformance, finds_no_fault_where_there_is_none) {
  for (const ConformanceCheck& check : kConformanceChecks) EXPECT_FALSE(notices(check, Flaw::none)) << check.name;
}

TEST(Conformance, has_a_flaw_for_every_check) {
  for (const ConformanceCheck& check : kConformanceChecks) {
    const auto about = [&](const FlawName& flaw) { return std::string_view(flaw.noticed_by) == check.name; };
    EXPECT_TRUE(std::ranges::any_of(kFlaws, about)) << check.name;
  }
}

class EveryFlaw : public ::testing::TestWithParam<FlawName> {};
INSTANTIATE_TEST_SUITE_P(Flaws, EveryFlaw, ::testing::ValuesIn(kFlaws),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryFlaw, is_noticed_by_the_check_that_is_about_it) {
  const auto check =
      std::ranges::find(kConformanceChecks, std::string_view(GetParam().noticed_by), &ConformanceCheck::name);
  ASSERT_NE(check, std::end(kConformanceChecks));
  EXPECT_TRUE(notices(*check, GetParam().flaw));
}

}  // namespace
}  // namespace onw::testing
