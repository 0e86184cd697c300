#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace onw {
namespace {

Scheduler::CostOf per_row(double seconds) {
  return [seconds](const StepShape& shape) { return Cost{seconds * shape.rows}; };
}

Demand decode(uint64_t session) { return {.session = session, .rows = 1, .decoding = true, .depth = 100}; }
Demand prompt(uint64_t session, int64_t rows) { return {.session = session, .rows = rows}; }

int total(const std::vector<Share>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0, [](int sum, const Share& s) { return sum + s.rows; });
}

int rows_of(const std::vector<Share>& shares, size_t demand) {
  for (const Share& share : shares)
    if (share.demand == demand) return share.rows;
  return 0;
}

TEST(Scheduler, decode_rows_of_all_come_first_then_prompt_rows) {
  Scheduler scheduler({.max_step_rows = 64, .prompt_rows = 32}, per_row(0));
  const std::vector<Demand> demands = {prompt(1, 100), decode(2), decode(3)};
  const auto shares = scheduler.plan(demands);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].demand, 1U);
  EXPECT_EQ(shares[1].demand, 2U);
  EXPECT_EQ(shares[2].demand, 0U);
  EXPECT_EQ(shares[2].rows, 32);
}

TEST(Scheduler, a_step_never_exceeds_the_target) {
  Scheduler scheduler({.max_step_rows = 20, .prompt_rows = 512}, per_row(0));
  EXPECT_EQ(total(scheduler.plan(std::vector<Demand>{prompt(1, 100), decode(2), decode(3)})), 20);
  Scheduler one({.max_step_rows = 1}, per_row(0));
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(total(one.plan(std::vector<Demand>{prompt(1, 100), decode(2), decode(3), prompt(4, 1)})), 1);
}

TEST(Scheduler, prompts_share_evenly_and_short_ones_leave_their_part_to_long_ones) {
  Scheduler scheduler({.max_step_rows = 512, .prompt_rows = 100}, per_row(0));
  const auto shares = scheduler.plan(std::vector<Demand>{prompt(1, 30000), prompt(2, 10), prompt(3, 30000)});
  EXPECT_EQ(rows_of(shares, 0), 45);
  EXPECT_EQ(rows_of(shares, 1), 10);
  EXPECT_EQ(rows_of(shares, 2), 45);
}

TEST(Scheduler, a_prompt_chunk_stays_within_the_latency_bound_while_somebody_waits_for_tokens) {
  Scheduler scheduler({.max_step_rows = 2048, .prompt_rows = 512, .latency_s = 0.2}, per_row(0.001));
  EXPECT_EQ(rows_of(scheduler.plan(std::vector<Demand>{prompt(1, 1000)}), 0), 512);
  EXPECT_EQ(rows_of(scheduler.plan(std::vector<Demand>{prompt(1, 1000), decode(2)}), 0), 128);
  Scheduler slow({.max_step_rows = 2048, .prompt_rows = 512, .latency_s = 0.2}, per_row(10));
  EXPECT_EQ(rows_of(slow.plan(std::vector<Demand>{prompt(1, 1000), decode(2)}), 0), 16);
}

TEST(Scheduler, more_decoders_than_a_step_holds_take_turns) {
  Scheduler scheduler({.max_step_rows = 4, .prompt_rows = 4}, per_row(0));
  std::vector<Demand> demands;
  for (uint64_t i = 0; i < 10; ++i) demands.push_back(decode(i));
  std::vector<int> served(10, 0);
  for (int step = 0; step < 50; ++step)
    for (const Share& share : scheduler.plan(demands)) ++served[share.demand];
  for (const int count : served) EXPECT_EQ(count, 20);
}

TEST(Scheduler, decoders_never_crowd_a_prompt_out) {
  Scheduler scheduler({.max_step_rows = 4, .prompt_rows = 4}, per_row(0));
  std::vector<Demand> demands = {prompt(99, 100)};
  for (uint64_t i = 0; i < 10; ++i) demands.push_back(decode(i));
  for (int step = 0; step < 10; ++step) EXPECT_EQ(rows_of(scheduler.plan(demands), 0), 1);
}

TEST(Scheduler, a_target_that_does_not_mix_gets_one_sequence_per_step_and_everybody_their_turn) {
  Scheduler scheduler({.mixes = false, .max_step_rows = 64, .prompt_rows = 64}, per_row(0));
  const std::vector<Demand> demands = {prompt(1, 10000), decode(2), decode(3), prompt(4, 10000)};
  std::vector<int> served(4, 0);
  for (int step = 0; step < 60; ++step) {
    const auto shares = scheduler.plan(demands);
    ASSERT_EQ(shares.size(), 1U);
    EXPECT_EQ(shares[0].rows, demands[shares[0].demand].decoding ? 1 : 64);
    ++served[shares[0].demand];
  }
  EXPECT_EQ(served, (std::vector<int>{10, 20, 20, 10}));  // a round of tokens, then one chunk
}

TEST(Scheduler, a_target_that_does_not_mix_bounds_its_chunks_too) {
  Scheduler scheduler({.mixes = false, .max_step_rows = 512, .prompt_rows = 512, .latency_s = 0.1}, per_row(0.001));
  std::vector<Demand> demands = {prompt(1, 10000), decode(2)};
  int largest = 0;
  for (int step = 0; step < 4; ++step)
    for (const Share& share : scheduler.plan(demands)) largest = std::max(largest, share.rows);
  EXPECT_EQ(largest, 64);
  demands.pop_back();
  EXPECT_EQ(scheduler.plan(demands)[0].rows, 512);
}

}  // namespace
}  // namespace onw
