// What every target must do, as tests: the promises of targets/executable.h, and batch-invariance on equal bits.
//
// A target's test file registers a tiny model (any number of them):
//
//   static const bool registered = onw::testing::register_conformance(
//       {.name = "CpuConformance_llama", .make = [] { return tiny_llama(); }});
//
// Header only, because it needs GoogleTest and belongs to test programs alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "targets/executable.h"

namespace onw::testing {

struct ConformanceSubject {
  std::string name;  // of the test suite
  std::function<std::unique_ptr<Executable>()> make;
  // How long the sequences get: 300 crosses a page of 256. Fewer for slow targets and short contexts; at least 24.
  int64_t tokens = 300;
  // 0: the same bits. Else how far logits may be apart, relative to the largest.
  double tolerance = 0;
  // Why this machine cannot run it; empty where it can.
  std::function<std::string()> why_not = {};
  // Lets go of what `make` keeps between the checks. Called behind the suite's last one.
  std::function<void()> release = {};
};

struct ConformanceCheck {
  const char* name;
  void (*run)(const ConformanceSubject&);
};

}  // namespace onw::testing

#include "targets/conformance_results.h"
#include "targets/conformance_rules.h"

namespace onw::testing {

inline constexpr ConformanceCheck kConformanceChecks[] = {
    {"one_shot_equals_token_by_token", one_shot_equals_token_by_token},
    {"uneven_segments_change_nothing", uneven_segments_change_nothing},
    {"only_the_rows_that_want_logits_have_them", only_the_rows_that_want_logits_have_them},
    {"hidden_states_come_where_wanted", hidden_states_come_where_wanted},
    {"neighbours_in_a_step_change_nothing", neighbours_in_a_step_change_nothing},
    {"sequences_that_take_turns_do_not_disturb_each_other", sequences_that_take_turns_do_not_disturb_each_other},
    {"forks_go_their_own_way", forks_go_their_own_way},
    {"a_fork_shares_any_restorable_beginning", a_fork_shares_any_restorable_beginning},
    {"truncation_forgets_the_tail_and_nothing_else", truncation_forgets_the_tail_and_nothing_else},
    {"checkpoints_bring_a_state_back", checkpoints_bring_a_state_back},
    {"commit_keeps_a_part_of_a_step", commit_keeps_a_part_of_a_step},
    {"a_cancelled_step_leaves_everything_as_before", a_cancelled_step_leaves_everything_as_before},
    {"a_step_cancelled_while_it_runs_happened_wholly_or_not_at_all",
     a_step_cancelled_while_it_runs_happened_wholly_or_not_at_all},
    {"rows_that_break_the_rules_are_refused_and_leave_everything_as_before",
     rows_that_break_the_rules_are_refused_and_leave_everything_as_before},
    {"a_step_takes_as_many_rows_as_promised_and_no_more", a_step_takes_as_many_rows_as_promised_and_no_more},
    {"reserve_makes_room_and_changes_nothing", reserve_makes_room_and_changes_nothing},
    {"need_and_cost_grow_with_what_is_asked", need_and_cost_grow_with_what_is_asked},
    {"an_exported_state_goes_on_elsewhere", an_exported_state_goes_on_elsewhere},
};

class ConformanceTest : public ::testing::Test {
 public:
  ConformanceTest(const ConformanceSubject& subject, const ConformanceCheck& check)
      : subject_(subject), check_(check) {}
  void TestBody() override {
    release_ = subject_.release;
    if (const std::string why = subject_.why_not ? subject_.why_not() : ""; !why.empty()) GTEST_SKIP() << why;
    tolerance() = subject_.tolerance;
    check_.run(subject_);
    tolerance() = 0;
  }
  static void TearDownTestSuite() {
    if (release_) release_();
    release_ = {};
  }

 private:
  static inline std::function<void()> release_;  // of the suite that runs

  ConformanceSubject subject_;
  ConformanceCheck check_;
};

// Adds every check to the test program, as suite `subject.name`.
inline bool register_conformance(const ConformanceSubject& subject) {
  for (const ConformanceCheck& check : kConformanceChecks)
    ::testing::RegisterTest(subject.name.c_str(), check.name, nullptr, nullptr, __FILE__, __LINE__,
                            [subject, check]() -> ConformanceTest* {
                              return std::make_unique<ConformanceTest>(subject, check).release();  // GoogleTest owns it
                            });
  return true;
}

}  // namespace onw::testing
