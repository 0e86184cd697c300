#include "targets/cpu/thread_table.h"

#include <gtest/gtest.h>

namespace onw::cpu {
namespace {

// One step, whose threads had `share` of the processors that they wanted.
bool step(ThreadTable& table, int64_t rows, double seconds, double share = 1) {
  return table.took(rows, seconds, share * table.choose(rows) * seconds);
}

// Runs steps of `rows` until the kind is settled; `seconds(threads)` is what one takes.
template <class Seconds>
int settle(ThreadTable& table, int64_t rows, Seconds seconds) {
  for (int s = 0; s < 1000; ++s)
    if (step(table, rows, seconds(table.choose(rows)))) break;
  return table.choose(rows);
}

TEST(ThreadTable, takes_the_fastest_number_of_threads) {
  ThreadTable table(8, 0, {});
  EXPECT_EQ(settle(table, 1, [](int threads) { return 1.0 / threads; }), 8);
  EXPECT_EQ(settle(table, 3, [](int threads) { return threads == 6 ? 1.0 : 2.0; }), 6);
}

TEST(ThreadTable, takes_the_fewest_of_those_that_are_as_fast) {
  ThreadTable table(8, 0, {});
  EXPECT_EQ(settle(table, 1, [](int threads) { return threads >= 4 ? 1.0 : 2.0; }), 4);
}

TEST(ThreadTable, tries_the_fast_cores_of_a_hybrid_alone) {
  ThreadTable table(12, 2, {});
  EXPECT_EQ(settle(table, 1, [](int threads) { return threads == 2 ? 1.0 : 1.5; }), 2);
}

TEST(ThreadTable, is_not_misled_by_slow_moments) {
  ThreadTable table(4, 0, {});
  int steps = 0;
  EXPECT_EQ(settle(table, 1, [&](int threads) { return (steps++ % 7 == 0 ? 0.5 : 0.01) / threads; }), 4);
}

TEST(ThreadTable, settles_each_kind_by_itself_after_a_few_trials) {
  ThreadTable table(8, 0, {});  // 8, 6 or 4 threads
  for (int s = 1; s < 3 * ThreadTable::kTrials; ++s) EXPECT_FALSE(step(table, 16, 1));
  EXPECT_TRUE(step(table, 16, 1));
  EXPECT_EQ(table.choices(), (ThreadTable::Choices{0, 0, 4}));
}

TEST(ThreadTable, tries_short_steps_for_long_enough_that_processor_time_can_be_told) {
  ThreadTable table(2, 0, {});
  const auto counted_late = [&](int s) { return s % 2 == 0 ? 0.4 : 1.6; };  // of a step of 2 ms
  int steps = 0;
  while (!step(table, 1, 0.002, counted_late(steps)) && steps < 1000) ++steps;
  EXPECT_GE(steps * 0.002, 0.9 * 2 * ThreadTable::kTrials * ThreadTable::kTrialSeconds);
  EXPECT_EQ(table.choices()[0], 1);
}

TEST(ThreadTable, learns_nothing_while_other_programs_disturb_it) {
  ThreadTable table(8, 0, {});
  for (int s = 0; s < 500; ++s)  // the more threads, the slower: they wait for each other
    EXPECT_FALSE(step(table, 1, 0.1 * table.choose(1), 0.7));
  EXPECT_EQ(settle(table, 1, [](int threads) { return 1.0 / threads; }), 8);
}

TEST(ThreadTable, takes_all_threads_for_some_steps_after_a_disturbance) {
  ThreadTable table(8, 0, {});
  (void)step(table, 1, 1);  // with 8; the next trial is with fewer
  EXPECT_LT(table.choose(1), 8);
  (void)step(table, 1, 1, 0.5);
  EXPECT_EQ(table.choose(1), 8);
}

TEST(ThreadTable, waits_while_something_of_ours_runs_beside_the_steps) {
  ThreadTable table(8, 0, {});
  for (int s = 0; s < 100; ++s) {
    table.disturbed(1);
    EXPECT_EQ(table.choose(1), 8);
    EXPECT_EQ(table.choices()[0], 0);
  }
  EXPECT_EQ(settle(table, 1, [](int threads) { return 1.0 / threads; }), 8);
}

TEST(ThreadTable, measures_fewer_threads_than_all_again) {
  ThreadTable wrong(8, 0, {4, 8, 0});
  for (int s = 0; s < 1000; ++s) (void)step(wrong, 1, 1.0 / wrong.choose(1));
  EXPECT_EQ(wrong.choices(), (ThreadTable::Choices{8, 8, 0}));
  ThreadTable right(8, 0, {4, 8, 0});
  for (int s = 0; s < 1000; ++s) EXPECT_FALSE(step(right, 1, 1)) << "nothing new to keep";
  EXPECT_EQ(right.choose(1), 4);
}

TEST(ThreadTable, takes_all_threads_without_measuring_where_they_were_the_choice) {
  ThreadTable table(8, 0, {8, 0, 0});
  for (int s = 0; s < 100; ++s) {
    EXPECT_EQ(table.choose(1), 8);
    EXPECT_FALSE(step(table, 1, 1));
  }
}

TEST(ThreadTable, gives_long_steps_all_threads) {
  ThreadTable table(8, 0, {2, 2, 2});
  EXPECT_EQ(table.choose(17), 8);
  EXPECT_FALSE(step(table, 512, 1));
}

TEST(ThreadTable, goes_by_what_was_measured_before_unless_it_cannot_be) {
  ThreadTable known(8, 0, {4, 0, 0});
  known.disturbed(1);
  EXPECT_EQ(known.choose(1), 4);
  EXPECT_EQ(ThreadTable(8, 0, {9, -1, 0}).choices(), (ThreadTable::Choices{0, 0, 0}));
}

TEST(ThreadTable, measures_nothing_with_one_thread) {
  ThreadTable table(1, 0, {});
  EXPECT_EQ(table.choose(1), 1);
  EXPECT_FALSE(step(table, 1, 1));
}

}  // namespace
}  // namespace onw::cpu
