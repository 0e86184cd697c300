#include "runtime/step_costs.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

StepShape rows(int n, int sequences = 1) { return {n, sequences, 0, n}; }

TEST(StepCosts, begin_with_what_the_target_estimates) {
  const StepCosts costs([](const StepShape& s) { return Cost{2.0 + s.rows}; });
  EXPECT_DOUBLE_EQ(costs.seconds(rows(1)), 3);
  EXPECT_DOUBLE_EQ(costs.seconds(rows(6)), 8);
}

TEST(StepCosts, rows_that_were_never_measured_are_not_believed_to_be_free) {
  StepCosts costs([](const StepShape&) { return Cost{1.0}; });
  EXPECT_DOUBLE_EQ(costs.seconds(rows(1)), 1);
  EXPECT_GT(costs.seconds(rows(4)), 1.1);
  costs.took(rows(4), 1);
  EXPECT_DOUBLE_EQ(costs.seconds(rows(4)), 1);
}

TEST(StepCosts, learn_each_number_of_rows_and_correct_those_near_it) {
  StepCosts costs([](const StepShape& s) { return Cost{s.rows * 1e-3}; });
  for (int i = 0; i < 100; ++i) {
    costs.took(rows(1), 0.010);
    costs.took(rows(8), 0.016);
  }
  EXPECT_NEAR(costs.seconds(rows(1)), 0.010, 1e-6);
  EXPECT_NEAR(costs.seconds(rows(8)), 0.016, 1e-6);
  EXPECT_NEAR(costs.seconds(rows(9)), 0.018, 1e-6);
}

TEST(StepCosts, one_slow_step_does_not_mislead_them) {
  StepCosts costs([](const StepShape&) { return Cost{0}; });
  for (int i = 0; i < 50; ++i) costs.took(rows(1), 0.010);
  costs.took(rows(1), 60);  // the machine slept
  EXPECT_LT(costs.seconds(rows(1)), 0.012);
}

// A machine that throttles is slower at all rows, whichever it runs at the time.
TEST(StepCosts, a_change_of_pace_changes_no_comparison) {
  StepCosts costs([](const StepShape&) { return Cost{1e-3}; });
  for (int i = 0; i < 20; ++i) {
    costs.took(rows(1), 0.010);
    costs.took(rows(8), 0.016);
  }
  for (int i = 0; i < 20; ++i) costs.took(rows(1), 0.019);
  EXPECT_NEAR(costs.seconds(rows(1)), 0.019, 0.0005);
  EXPECT_NEAR(costs.seconds(rows(8)) / costs.seconds(rows(1)), 1.6, 0.25);
  for (int i = 0; i < 20; ++i) costs.took(rows(8), 0.016);
  EXPECT_NEAR(costs.seconds(rows(8)) / costs.seconds(rows(1)), 1.6, 0.25);
  // Nor does it where the table is of another day.
  StepCosts next([](const StepShape&) { return Cost{1e-3}; }, costs.table());
  for (int i = 0; i < 20; ++i) next.took(rows(1), 0.019);
  EXPECT_NEAR(next.seconds(rows(1)), 0.019, 0.0005);
  EXPECT_NEAR(next.seconds(rows(8)) / next.seconds(rows(1)), 1.6, 0.4);
}

TEST(StepCosts, rows_that_took_long_once_are_tried_again_in_time) {
  StepCosts costs([](const StepShape&) { return Cost{1e-3}; });
  costs.took(rows(1), 0.010);
  for (int i = 0; i < 3; ++i) costs.took(rows(8), 0.040);
  for (int i = 0; i < 16; ++i) costs.took(rows(1), 0.010);
  EXPECT_GT(costs.seconds(rows(8)), 0.035);
  for (int i = 0; i < 1000; ++i) costs.took(rows(1), 0.010);
  EXPECT_LT(costs.seconds(rows(8)), 0.014);
  EXPECT_GT(costs.seconds(rows(8)), 0.010);
  costs.took(rows(8), 0.040);  // it was the rows
  EXPECT_GT(costs.seconds(rows(8)), 0.035);
}

TEST(StepCosts, depth_is_the_targets_business) {
  StepCosts costs([](const StepShape& s) { return Cost{1e-3 + 1e-6 * static_cast<double>(s.depth)}; });
  for (int i = 0; i < 50; ++i) costs.took({1, 1, 1000, 1}, 0.004);
  EXPECT_NEAR(costs.seconds({1, 1, 3000, 1}), 0.008, 1e-6);
}

}  // namespace
}  // namespace onw
