#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <thread>
#include <vector>

#include "base/checked.h"
#include "base/thread_affinity.h"

namespace onw {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint32_t kOpen = 0x80000000u;

// What a thread has left of its share: units next..end - 1 as end << 32 | next. The owner takes from the front, half of
// what is left at a time; thieves take half from the back.
struct alignas(64) Share {
  std::atomic<uint64_t> range{0};

  static uint64_t pack(uint64_t next, uint64_t end) { return end << 32 | next; }

  bool take(bool front, uint64_t& begin, uint64_t& end) {
    uint64_t was = range.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t next = was & 0xffffffffu, last = was >> 32;
      if (next >= last) return false;
      const uint64_t count = (last - next + 1) / 2;
      begin = front ? next : last - count;
      end = begin + count;
      const uint64_t left = front ? pack(end, last) : pack(next, begin);
      if (range.compare_exchange_weak(was, left, std::memory_order_relaxed)) return true;
    }
  }
};

void pause() { __builtin_ia32_pause(); }

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : shares(threads), in_use(threads) {}

  // The job; written by the caller while nobody is inside, read by those who entered.
  int64_t n = 0;
  int64_t grain = 1;
  int parts = 0;
  void* object = nullptr;
  Call call = nullptr;
  std::vector<Share> shares;

  // kOpen while there is a job to join; below it the threads that are inside.
  alignas(64) std::atomic<uint32_t> gate{0};
  // Counts jobs; what sleepers wait on.
  alignas(64) std::atomic<int> epoch{0};
  std::atomic<bool> stop{false};
  std::atomic<int> in_use;  // threads that take part; the others wait on it
  bool running = false;
  std::vector<std::jthread> workers;

  void work(int thread) {
    uint64_t begin = 0, end = 0;
    const auto call_units = [&] {
      call(object, static_cast<int64_t>(begin) * grain, std::min(static_cast<int64_t>(end) * grain, n), thread);
    };
    while (shares[thread].take(true, begin, end)) call_units();
    for (int other = 1; other < parts; other++)
      while (shares[(thread + other) % parts].take(false, begin, end)) call_units();
  }

  bool enter() {
    uint32_t was = gate.load(std::memory_order_relaxed);
    while ((was & kOpen) != 0)
      if (gate.compare_exchange_weak(was, was + 1, std::memory_order_acquire)) return true;
    return false;
  }

  // False at the end.
  bool wait_until_in_use(int thread) {
    for (int most = 0; thread >= (most = in_use.load(std::memory_order_relaxed));) in_use.wait(most);
    return !stop.load(std::memory_order_relaxed);
  }

  void wait_for_job(int seen) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 64; i++) {
        if (epoch.load(std::memory_order_relaxed) != seen) return;
        pause();
      }
    } while (std::chrono::steady_clock::now() < until);
    epoch.wait(seen, std::memory_order_relaxed);
  }

  void serve(int thread) {
    std::fesetenv(FE_DFL_ENV);
    int seen = 0;
    for (;;) {
      if (!wait_until_in_use(thread)) return;
      wait_for_job(seen);
      if (stop.load(std::memory_order_relaxed)) return;
      seen = epoch.load(std::memory_order_relaxed);
      if (!enter()) continue;
      if (thread < parts) work(thread);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(const ThreadPlan& plan) : state_(std::make_unique<State>(plan.threads)) {
  CHECK(plan.threads >= 1 && (plan.cpus.empty() || plan.cpus.size() == static_cast<size_t>(plan.threads)));
  for (int t = 1; t < plan.threads; t++)
    state_->workers.emplace_back([state = state_.get(), t, cpu = plan.cpus.empty() ? -1 : plan.cpus[t]] {
      if (cpu >= 0) keep_thread_on(cpu);
      state->serve(t);
    });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  use(0);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  state_->workers.clear();
}

int ThreadPool::threads() const { return static_cast<int>(state_->shares.size()); }

void ThreadPool::use(int count) {
  const int in_use = count > 0 ? std::min(count, threads()) : threads();
  if (state_->in_use.exchange(in_use, std::memory_order_relaxed) < in_use) state_->in_use.notify_all();
}

void ThreadPool::run(const Split& split, const void* object, Call call) {
  State& s = *state_;
  CHECK(!s.running && split.grain > 0);
  if (split.n <= 0) return;
  const int64_t units = ceil_div(split.n, split.grain);
  CHECK(units < (int64_t{1} << 31));
  const int parts = static_cast<int>(std::min<int64_t>(s.in_use.load(std::memory_order_relaxed), units));
  void* target = const_cast<void*>(object);
  s.running = true;
  if (parts == 1) {
    call(target, 0, split.n, 0);
    s.running = false;
    return;
  }
  s.n = split.n, s.grain = split.grain, s.parts = parts, s.object = target, s.call = call;
  for (int t = 0; t < parts; t++)
    s.shares[t].range.store(Share::pack(units * t / parts, units * (t + 1) / parts), std::memory_order_relaxed);
  s.gate.store(kOpen, std::memory_order_release);
  s.epoch.fetch_add(1, std::memory_order_release);
  s.epoch.notify_all();
  s.work(0);
  s.gate.fetch_and(~kOpen, std::memory_order_relaxed);
  for (int spins = 0; s.gate.load(std::memory_order_acquire) != 0; spins++)
    spins < 4096 ? pause() : std::this_thread::yield();
  s.running = false;
}

}  // namespace onw
