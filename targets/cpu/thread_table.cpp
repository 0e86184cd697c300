#include "targets/cpu/thread_table.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace onw::cpu {
namespace {

// Fewer threads are taken where they cost no more than this: the battery and other programs gain the rest.
constexpr double kTolerance = 1.03;

// Less than this share of the processors, and somebody else had them.
constexpr double kRan = 0.85;

constexpr int kWaitAfterDisturbance = 16;  // steps

size_t kind_of(int64_t rows) {
  return static_cast<size_t>(std::ranges::lower_bound(ThreadTable::kMostRows, rows) - ThreadTable::kMostRows.begin());
}

}  // namespace

ThreadTable::ThreadTable(int threads, int fast, const Choices& known) : threads_(threads), choices_(known) {
  candidates_ = {threads, (3 * threads + 3) / 4, (threads + 1) / 2};
  if (fast > 0 && fast < threads) candidates_.push_back(fast);
  std::ranges::sort(candidates_, std::greater());
  candidates_.erase(std::ranges::unique(candidates_).begin(), candidates_.end());
  for (int& choice : choices_)
    if (choice < 0 || choice > threads) choice = 0;
  for (size_t kind = 0; kind < trials_.size(); ++kind) {
    Trials& t = trials_[kind];
    t.settled = choices_[kind] == threads;
    t.fastest.assign(candidates_.size(), std::numeric_limits<double>::infinity());
    t.begin_next();
  }
}

void ThreadTable::Trials::begin_next() {
  seconds = processor_seconds = 0;
  fastest_step = std::numeric_limits<double>::infinity();
}

void ThreadTable::Trials::wait() {
  steps_to_wait = kWaitAfterDisturbance;
  begin_next();
}

int ThreadTable::choose(int64_t rows) const {
  const size_t kind = kind_of(rows);
  if (kind == kMostRows.size() || candidates_.size() == 1) return threads_;
  if (trials_[kind].settled || trials_[kind].steps_to_wait > 0) return choices_[kind] != 0 ? choices_[kind] : threads_;
  return candidates_[static_cast<size_t>(trials_[kind].done) % candidates_.size()];
}

bool ThreadTable::took(int64_t rows, double seconds, double processor_seconds) {
  const size_t kind = kind_of(rows);
  if (!tries(kind)) return false;
  Trials& t = trials_[kind];
  if (t.steps_to_wait > 0) {
    --t.steps_to_wait;
    return false;
  }
  t.seconds += seconds;
  t.processor_seconds += processor_seconds;
  t.fastest_step = std::min(t.fastest_step, seconds);
  if (t.seconds < kTrialSeconds) return false;
  if (t.processor_seconds < kRan * choose(rows) * t.seconds) {
    t.wait();
    return false;
  }
  double& fastest = t.fastest[static_cast<size_t>(t.done) % candidates_.size()];
  fastest = std::min(fastest, t.fastest_step);
  t.begin_next();
  if (++t.done < kTrials * static_cast<int>(candidates_.size())) return false;
  const double most = kTolerance * std::ranges::min(t.fastest);
  const int before = choices_[kind];
  for (size_t c = 0; c < candidates_.size(); ++c)  // the last, which is the fewest, wins
    if (t.fastest[c] <= most) choices_[kind] = candidates_[c];
  t.settled = true;
  return choices_[kind] != before;
}

void ThreadTable::disturbed(int64_t rows) {
  if (const size_t kind = kind_of(rows); tries(kind)) trials_[kind].wait();
}

}  // namespace onw::cpu
