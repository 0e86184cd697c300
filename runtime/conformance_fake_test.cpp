// The conformance tests judged: a fake that keeps every promise passes, and each broken promise is noticed.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>

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

// The checks that fail on a fake with `flaw`.
std::vector<std::string> failing_checks(Flaw flaw) {
  const ConformanceSubject subject = {
      .name = "broken", .make = [flaw] { return std::make_unique<BrokenExecutable>(flaw); }, .tokens = 40};
  std::vector<std::string> failing;
  for (const ConformanceCheck& check : kConformanceChecks) {
    ::testing::TestPartResultArray results;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
      check.run(subject);
    }
    for (int i = 0; i < results.size(); ++i) {
      if (!results.GetTestPartResult(i).failed()) continue;
      failing.emplace_back(check.name);
      break;
    }
  }
  return failing;
}

TEST(Conformance, passes_without_a_flaw) { EXPECT_TRUE(failing_checks(Flaw::none).empty()); }

class EveryFlaw : public ::testing::TestWithParam<FlawName> {};
INSTANTIATE_TEST_SUITE_P(Flaws, EveryFlaw, ::testing::ValuesIn(kFlaws),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryFlaw, is_noticed_by_the_check_that_is_about_it) {
  const auto failing = failing_checks(GetParam().flaw);
  EXPECT_NE(std::ranges::find(failing, GetParam().noticed_by), failing.end())
      << GetParam().noticed_by << " did not notice it";
}

}  // namespace
}  // namespace onw::testing
