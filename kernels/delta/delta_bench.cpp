// The gated delta rule of one layer as large as Qwen3.5's (32 value heads of 128 x 128, 2 MiB of state), one thread: a
// single row, by bytes of state, and whole chunks, by operations of the recurrence (6 a state element and row).
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/delta/delta.h"

namespace onw {
namespace {

constexpr int64_t kDim = 128, kHeads = 32, kSize = kDim * kDim;

struct Layer {
  std::vector<float> edge, row, log, out;
  Layer() : edge(kHeads * kSize, 0.01f), row(kDim, 0.08f), log(kDeltaChunk * (kDim + 1)), out(kDim) {}

  DeltaChunk chunk(int64_t head, int first, int last) {
    DeltaChunk d{.key_dim = kDim, .value_dim = kDim, .first = first, .last = last, .edge = edge.data() + head * kSize};
    d.next_edge = edge.data() + head * kSize;
    d.u = log.data();
    d.c = log.data() + kDim;
    d.log_stride = kDim + 1;
    for (int s = 0; s < last; ++s)
      d.k[s] = d.q[s] = d.v[s] = row.data(), d.out[s] = out.data(), d.g[s] = -0.1f, d.beta[s] = 0.5f;
    return d;
  }
};

void run(benchmark::State& state, const DeltaOps& ops, int first, int last) {
  Layer layer;
  for (auto _ : state)
    for (int64_t head = 0; head < kHeads; ++head) ops.chunk(layer.chunk(head, first, last));
  if (last - first == 1)
    state.SetBytesProcessed(state.iterations() * kHeads * kSize * int64_t{sizeof(float)});
  else
    state.counters["ops"] = benchmark::Counter(6.0 * static_cast<double>((last - first) * kHeads * kSize),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

const bool kRegistered = [] {
  for (const DeltaOpsRow& row : delta_ops_table()) {
    if (!runs_at(row.needs, available_isas(cpu_features()).back())) continue;
    const auto add = [&](const char* what, int first, int last) {
      benchmark::RegisterBenchmark((std::string(row.name) + what).c_str(),
                                   [&ops = *row.ops, first, last](benchmark::State& s) { run(s, ops, first, last); });
    };
    add("/one_row", 7, 8);
    add("/four_rows", 4, 8);
    add("/chunk", 0, kDeltaChunk);
  }
  return true;
}();

}  // namespace
}  // namespace onw
