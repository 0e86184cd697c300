#include "targets/cpu/thread_table.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace onw::cpu {
namespace {

// Fewer threads are taken where they cost no more than this: the battery and other programs gain the rest.
constexpr double kTolerance = 1.03;

constexpr int kWaitAfterDisturbance = 8;

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
  for (Trials& t : trials_) t.fastest.assign(candidates_.size(), std::numeric_limits<double>::infinity());
}

int ThreadTable::choose(int64_t rows) const {
  const size_t kind = kind_of(rows);
  if (kind == kMostRows.size() || candidates_.size() == 1) return threads_;
  if (choices_[kind] != 0) return choices_[kind];
  if (trials_[kind].quiet_steps_to_wait > 0) return threads_;
  return candidates_[static_cast<size_t>(trials_[kind].steps) % candidates_.size()];
}

bool ThreadTable::took(int64_t rows, double seconds, bool disturbed) {
  const size_t kind = kind_of(rows);
  if (kind == kMostRows.size() || candidates_.size() == 1 || choices_[kind] != 0) return false;
  Trials& t = trials_[kind];
  if (disturbed) t.quiet_steps_to_wait = kWaitAfterDisturbance;
  if (t.quiet_steps_to_wait > 0) {
    --t.quiet_steps_to_wait;
    return false;
  }
  double& fastest = t.fastest[static_cast<size_t>(t.steps) % candidates_.size()];
  fastest = std::min(fastest, seconds);
  if (++t.steps < steps_to_settle()) return false;
  const double most = kTolerance * std::ranges::min(t.fastest);
  for (size_t c = 0; c < candidates_.size(); ++c)  // the last, which is the fewest, wins
    if (t.fastest[c] <= most) choices_[kind] = candidates_[c];
  return true;
}

}  // namespace onw::cpu
