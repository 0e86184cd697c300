#include "base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace onw {
namespace {

using ::testing::HasSubstr;

ChildOutcome shell(const std::string& script, double seconds = 10) {
  const auto outcome = run_child({"/bin/sh", "-c", script}, seconds);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return outcome.value_or(ChildOutcome{});
}

TEST(ChildProcess, gives_what_was_printed_and_the_exit_code) {
  const ChildOutcome outcome = shell("echo data; echo trouble >&2; exit 3");
  EXPECT_EQ(outcome.output, "data\n");
  EXPECT_EQ(outcome.errors, "trouble\n");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_FALSE(outcome.succeeded());
  EXPECT_EQ(describe(outcome, 10), "ended with exit code 3");
  EXPECT_TRUE(shell("true").succeeded());
}

// However it ends: what it took says how much the next one needs.
TEST(ChildProcess, tells_the_memory_that_it_had_at_most) {
  const int64_t small = shell("true").peak_bytes;
  EXPECT_GT(small, 100'000);
  const ChildOutcome killed = shell("x=$(head -c 30000000 /dev/zero | tr '\\0' x); kill -KILL $$");
  EXPECT_EQ(killed.signal, 9);
  EXPECT_GT(killed.peak_bytes, small + 20'000'000);
}

TEST(ChildProcess, has_nothing_to_read) { EXPECT_EQ(shell("cat; echo end").output, "end\n"); }

TEST(ChildProcess, that_prints_more_than_a_pipe_holds_ends) {
  EXPECT_EQ(shell("head -c 300000 /dev/zero | tr '\\0' x").output.size(), 300000U);
}

TEST(ChildProcess, a_crash_is_told_by_its_signal) {
  const ChildOutcome outcome = shell("kill -SEGV $$");
  EXPECT_FALSE(outcome.succeeded());
  EXPECT_THAT(describe(outcome, 10), HasSubstr("crashed (Segmentation fault)"));
}

TEST(ChildProcess, is_ended_with_what_it_started_when_its_time_is_over) {
  const auto begin = std::chrono::steady_clock::now();
  const ChildOutcome outcome = shell("sleep 60 & sleep 60", 0.3);  // the first holds the pipe open
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(describe(outcome, 3), "did not end within 3 s");
}

TEST(ChildProcess, that_does_not_exist_is_an_error_with_its_name) {
  const auto outcome = run_child({"/no/such/program"}, 1);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("/no/such/program"));
}

// A server's socket that a child kept would stay bound after the server's end.
TEST(ChildProcess, inherits_no_open_file) {
  const int fd = ::open("/dev/zero", O_RDONLY);  // as libraries open theirs: without close-on-exec
  ASSERT_GE(fd, 0);
  const auto outcome = run_child({"/bin/sh", "-c", "ls -l /proc/self/fd"}, 20);
  ::close(fd);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->output.find("/dev/zero"), std::string::npos) << outcome->output;
  EXPECT_NE(outcome->output.find("/dev/null"), std::string::npos) << "its standard input is listed";
}

}  // namespace
}  // namespace onw
