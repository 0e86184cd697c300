// How many threads a step is worth. Steps of few rows are bound by memory, which a few cores saturate: more of them
// only take power and, where cores differ, wait for the slowest. Measured on the steps of the first answers themselves,
// for the number of threads never changes an answer; then kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace onw::cpu {

class ThreadTable {
 public:
  // Kinds of steps that are told apart: 1 row, 2 to 4, 5 to 16. Longer ones are bound by operations and take all
  // threads.
  static constexpr std::array<int64_t, 3> kMostRows = {1, 4, 16};
  static constexpr int kTrials = 3;              // for each number of threads; the fastest step counts: noise only adds
  static constexpr double kTrialSeconds = 0.05;  // of a trial at least, for the system counts processor time late

  using Choices = std::array<int, kMostRows.size()>;  // threads by kind; 0: not measured yet

  // `fast` of the `threads` are on the fastest cores; 0 or `threads`: all are alike. What was measured before is gone
  // by, but fewer threads than all are measured again, which takes half a second: what made them as fast may have been
  // another program's work, and they would stay slow for good. Choices beyond `threads` are measured anew.
  ThreadTable(int threads, int fast, const Choices& known);

  // How many threads the next step of `rows` takes.
  int choose(int64_t rows) const;

  // What the step took that choose() spoke of: seconds, and those that all threads together had a processor. Threads
  // that take part compute or spin; where they had less, others wanted the processors: such a trial says nothing, and
  // none is made for a while. True where this settled a kind and the choice is new.
  bool took(int64_t rows, double seconds, double processor_seconds);

  // The step that choose() spoke of says nothing: something else of ours ran beside it.
  void disturbed(int64_t rows);

  const Choices& choices() const { return choices_; }

 private:
  struct Trials {
    bool settled = false;
    int done = 0;
    double seconds = 0;  // of the running one
    double processor_seconds = 0;
    double fastest_step = 0;
    int steps_to_wait = 0;        // before the next
    std::vector<double> fastest;  // seconds of a step, by candidate

    void begin_next();
    void wait();
  };
  bool tries(size_t kind) const { return kind < kMostRows.size() && candidates_.size() > 1 && !trials_[kind].settled; }

  int threads_ = 1;
  std::vector<int> candidates_;  // numbers of threads, descending
  Choices choices_{};
  std::array<Trials, kMostRows.size()> trials_;
};

}  // namespace onw::cpu
