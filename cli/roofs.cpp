#include "cli/roofs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/huge_memory.h"
#include "base/memory.h"
#include "kernels/roof/roof.h"

namespace onw::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPiece = 1 << 20;
constexpr int64_t kWindowPieces = 64;
constexpr int64_t kDotRounds = 200'000;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The best rate of `work`, which returns how much it did, over some `seconds` and at least three rounds.
template <class Work>
double best_rate(double seconds, Work work) {
  double best = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < 3 || since(begin) < seconds; ++round) {
    const auto start = Clock::now();
    const double done = work();
    best = std::max(best, done / since(start));
  }
  return best;
}

}  // namespace

Roofs measure_roofs(const ThreadPlan& plan, Isa isa, double seconds) {
  ThreadPool pool(plan);
  Roofs roofs;
  roofs.threads = pool.threads();
  roofs.buffer_bytes = std::clamp<int64_t>(available_memory_bytes() / 8, 16 * kPiece, 1024 * kPiece) / kPiece * kPiece;
  const HugeMemory memory(static_cast<size_t>(roofs.buffer_bytes), 16 * kPiece);
  const auto bytes = memory.bytes();
  roofs.buffer_bytes = static_cast<int64_t>(bytes.size()) / kPiece * kPiece;
  const int64_t pieces = roofs.buffer_bytes / kPiece;
  pool.parallel_for(pieces, [&](int64_t begin, int64_t end, int) {  // pages that were never written are all one page
    std::memset(bytes.data() + begin * kPiece, 0x5a, static_cast<size_t>((end - begin) * kPiece));
  });
  std::atomic<uint64_t> sink = 0;
  int64_t window = 0;  // short rounds: one that nothing else disturbed is among them
  const int64_t windows = std::max<int64_t>(pieces / kWindowPieces, 1);
  roofs.read_bytes_per_s = best_rate(seconds, [&] {
    const int64_t first = window++ % windows * kWindowPieces;
    const int64_t count = std::min(kWindowPieces, pieces);
    pool.parallel_for(count, [&](int64_t begin, int64_t end, int) {
      sink += roof_read(
          bytes.subspan(static_cast<size_t>((first + begin) * kPiece), static_cast<size_t>((end - begin) * kPiece)),
          isa);
    });
    return static_cast<double>(count * kPiece);
  });
  const auto dot_rate = [&](Isa level) {
    return best_rate(seconds, [&] {
      std::atomic<int64_t> ops = 0;
      pool.parallel_for(pool.threads(),
                        [&](int64_t begin, int64_t end, int) { ops += (end - begin) * roof_dot(kDotRounds, level); });
      return static_cast<double>(ops.load());
    });
  };
  roofs.ops_per_s = dot_rate(isa);
  roofs.vector_ops_per_s = isa == Isa::amx ? dot_rate(Isa::avx512vnni) : roofs.ops_per_s;
  return roofs;
}

}  // namespace onw::cli
