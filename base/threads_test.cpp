#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

namespace onw {
namespace {

TEST(ThreadPool, covers_every_index_once_in_ranges_that_begin_at_the_grain) {
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000})
      for (const int64_t grain : {1, 4, 16}) {
        const auto seen = std::make_unique<std::atomic<int>[]>(n + 1);
        std::atomic<int> misplaced = 0;
        pool.parallel_for(Split{n, grain}, [&](int64_t begin, int64_t end, int thread) {
          if (begin % grain != 0 || begin >= end || end > n || thread < 0 || thread >= threads) misplaced++;
          for (int64_t i = begin; i < end; i++) seen[i]++;
        });
        EXPECT_EQ(misplaced, 0);
        for (int64_t i = 0; i < n; i++) ASSERT_EQ(seen[i], 1) << i << " of " << n << ", grain " << grain;
      }
  }
}

TEST(ThreadPool, survives_many_short_jobs_in_a_row) {
  ThreadPool pool(4);
  int64_t total = 0;
  for (int job = 0; job < 20000; job++) {
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(5, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    total += sum;
  }
  EXPECT_EQ(total, 100000);
}

TEST(ThreadPool, lets_others_take_the_tail_of_a_slow_thread) {
  ThreadPool pool(2);
  std::atomic<int> by_slow = 0, by_other = 0;
  std::atomic<int> slow = -1;
  pool.parallel_for(64, [&](int64_t begin, int64_t end, int thread) {
    int expected = -1;
    if (slow.compare_exchange_strong(expected, thread)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    (thread == slow ? by_slow : by_other) += static_cast<int>(end - begin);
  });
  EXPECT_EQ(by_slow + by_other, 64);
  EXPECT_GT(by_other, 32);  // its own half, and some of the other's
}

TEST(ThreadPool, uses_no_more_threads_than_it_was_told_from_then_on) {
  ThreadPool pool(4);
  for (int i = 0; i < 1000; i++) {
    const int most = i * 7 % 5;  // 0: all
    pool.use(most);
    std::atomic<int> beyond = 0, done = 0;
    pool.parallel_for(100, [&](int64_t begin, int64_t end, int thread) {
      beyond += thread >= (most == 0 ? 4 : most);
      done += static_cast<int>(end - begin);
    });
    ASSERT_EQ(beyond, 0);
    ASSERT_EQ(done, 100);
  }
}

TEST(ThreadPool, wakes_those_that_slept_when_more_are_to_take_part) {
  ThreadPool pool(3);
  pool.use(1);
  pool.parallel_for(8, [](int64_t, int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  pool.use(3);
  std::vector<std::atomic<int>> calls(3);
  for (int i = 0; i < 50; i++)
    pool.parallel_for(30, [&](int64_t, int64_t, int thread) {
      calls[static_cast<size_t>(thread)]++;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  for (const auto& n : calls) EXPECT_GT(n, 0);
}

TEST(ThreadPool, keeps_denormals_and_rounds_to_nearest_in_every_thread) {
  std::fesetround(FE_UPWARD);  // new threads inherit the mode of the one that makes them
  ThreadPool pool(3);
  std::fesetround(FE_TONEAREST);
  std::atomic<int> wrong = 0;
  std::vector<int> calls(3);
  for (int i = 0; i < 50; i++)
    pool.parallel_for(3, [&](int64_t, int64_t, int thread) {
      volatile float tiny = 0x1p-149f;
      if (tiny * 1.0f != 0x1p-149f || std::fegetround() != FE_TONEAREST) wrong++;
      calls[thread]++;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(calls[1] + calls[2], 0);
}

TEST(ThreadPool, takes_no_cpu_while_idle) {
  ThreadPool pool(4);
  pool.parallel_for(4, [](int64_t, int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.01);
}

}  // namespace
}  // namespace onw
