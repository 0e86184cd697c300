// How many threads a step is worth. Steps of few rows are bound by memory, which a few cores saturate: more of them
// only take power and, where cores differ, wait for the slowest. Measured on the steps of the first answers themselves,
// for the number of threads never changes an answer; then kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace onw::cpu {

class ThreadTable {
 public:
  // Kinds of steps that are told apart: 1 row, 2 to 4, 5 to 16. Longer ones are bound by operations and take all
  // threads.
  static constexpr std::array<int64_t, 3> kMostRows = {1, 4, 16};
  static constexpr int kTrials = 5;  // for each number of threads; the fastest counts, for noise only adds

  using Choices = std::array<int, kMostRows.size()>;  // threads by kind; 0: not measured yet

  // `fast` of the `threads` are on the fastest cores; 0 or `threads`: all are alike. Choices beyond `threads` are
  // measured anew.
  ThreadTable(int threads, int fast, const Choices& known);

  // How many threads the next step of `rows` takes.
  int choose(int64_t rows) const;

  // What the step took that choose() spoke of. One that was `disturbed` by other programs says nothing, and nothing is
  // tried for a while. True where this settled a kind.
  bool took(int64_t rows, double seconds, bool disturbed = false);

  const Choices& choices() const { return choices_; }

  // Undisturbed steps of a kind until it is settled.
  int64_t steps_to_settle() const { return kTrials * static_cast<int64_t>(candidates_.size()); }

 private:
  struct Trials {
    int steps = 0;                // that counted
    int quiet_steps_to_wait = 0;  // before the next trial
    std::vector<double> fastest;  // seconds, by candidate
  };

  int threads_ = 1;
  std::vector<int> candidates_;  // numbers of threads, descending
  Choices choices_{};
  std::array<Trials, kMostRows.size()> trials_;
};

}  // namespace onw::cpu
