// One pool of threads for the kernels. Work is split evenly beforehand; whoever is done takes from the others' tails.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/topology.h"

namespace onw {

struct Split {
  int64_t n = 0;
  int64_t grain = 1;  // ranges begin at multiples of it
};

// Threads spin for some 50 microseconds after the last work, then sleep: an idle pool takes no CPU. All keep denormals
// and round to nearest, so results do not depend on who computed what. One thread at a time calls; it takes part as
// thread 0.
class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPlan& plan);
  explicit ThreadPool(int threads) : ThreadPool(ThreadPlan{.threads = threads}) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;

  // From now on at most so many take part, the others sleep: work bound by memory may be faster on fewer. 0: all.
  void use(int threads);

  // Calls fn(begin, end, thread) until 0..n - 1 is covered, each index once; returns when all calls have returned. No
  // allocation. Not from within fn.
  template <class Function>
  void parallel_for(const Split& split, Function&& fn) {
    using Object = std::remove_reference_t<Function>;
    run(split, &fn, [](void* object, int64_t begin, int64_t end, int thread) {
      (*static_cast<Object*>(object))(begin, end, thread);
    });
  }
  template <class Function>
  void parallel_for(int64_t n, Function&& fn) {
    parallel_for(Split{n}, fn);
  }

 private:
  using Call = void (*)(void* object, int64_t begin, int64_t end, int thread);
  void run(const Split& split, const void* object, Call call);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onw
