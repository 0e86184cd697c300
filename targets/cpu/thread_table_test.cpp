#include "targets/cpu/thread_table.h"

#include <gtest/gtest.h>

namespace onw::cpu {
namespace {

// Runs steps of `rows` until the kind is settled; `seconds(threads)` is what one takes.
template <class Seconds>
int settle(ThreadTable& table, int64_t rows, Seconds seconds) {
  for (int step = 0; step < 1000; ++step)
    if (table.took(rows, seconds(table.choose(rows)))) break;
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
  int step = 0;
  EXPECT_EQ(settle(table, 1, [&](int threads) { return (step++ % 7 == 0 ? 50.0 : 1.0) / threads; }), 4);
}

TEST(ThreadTable, settles_within_the_steps_it_says_and_each_kind_by_itself) {
  ThreadTable table(8, 0, {});
  for (int64_t step = 1; step < table.steps_to_settle(); ++step) EXPECT_FALSE(table.took(16, 1));
  EXPECT_TRUE(table.took(16, 1));
  EXPECT_EQ(table.choices(), (ThreadTable::Choices{0, 0, 4}));
}

TEST(ThreadTable, learns_nothing_while_other_programs_disturb_it_and_takes_all_threads_meanwhile) {
  ThreadTable table(8, 0, {});
  (void)table.took(1, 1.0 / table.choose(1));
  for (int step = 0; step < 100; ++step) {
    EXPECT_FALSE(table.took(1, table.choose(1), true));  // the more threads, the slower: they wait for each other
    EXPECT_EQ(table.choose(1), 8);
  }
  EXPECT_EQ(settle(table, 1, [](int threads) { return 1.0 / threads; }), 8);
}

TEST(ThreadTable, gives_long_steps_all_threads) {
  ThreadTable table(8, 0, {2, 2, 2});
  EXPECT_EQ(table.choose(17), 8);
  EXPECT_FALSE(table.took(512, 1));
}

TEST(ThreadTable, goes_by_what_was_measured_before_unless_it_cannot_be) {
  EXPECT_EQ(ThreadTable(8, 0, {4, 0, 0}).choose(1), 4);
  EXPECT_EQ(ThreadTable(8, 0, {9, -1, 0}).choices(), (ThreadTable::Choices{0, 0, 0}));
}

TEST(ThreadTable, measures_nothing_with_one_thread) {
  ThreadTable table(1, 0, {});
  EXPECT_EQ(table.choose(1), 1);
  EXPECT_FALSE(table.took(1, 1));
}

}  // namespace
}  // namespace onw::cpu
