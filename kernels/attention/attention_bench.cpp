// Decode: one token against a cache of many positions, from memory: GB/s of K and V read. Prompt: 64 tokens against 512
// positions: integer operations per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/attention/attention.h"

namespace onw {
namespace {

struct Memory {
  explicit Memory(size_t bytes) : data(new(std::align_val_t{4096}) std::byte[bytes]) {}
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte[], Free> data;
};

// `heads` caches of `positions`, each with its page table; every page is written.
struct Caches {
  Caches(const AttentionForm& form, int64_t heads, int64_t positions)
      : blocks(positions / kPagePositions), memory(heads * blocks * form.layout().bytes()) {
    std::vector<float> row(form.head_dim);
    unsigned state = 1;
    for (int64_t p = 0; p < heads * blocks; p++) {
      pages.push_back(memory.data.get() + p * form.layout().bytes());
      std::byte* page = memory.data.get() + p * form.layout().bytes();
      for (int64_t slot = 0; slot < kPagePositions; slot++) {
        for (float& x : row) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
        attention_ops(Isa::avx2).kv_write(form.layout(), page, slot, row.data(), row.data());
      }
    }
  }
  int64_t blocks;
  Memory memory;
  std::vector<const std::byte*> pages;
};

struct Rows {
  Rows(const AttentionForm& form, int64_t tokens, int64_t group, int64_t first_end)
      : q(tokens * group * form.head_dim, 0.3f), out(q.size()), scratch(attention_scratch_bytes(form, tokens * group)) {
    for (size_t i = 0; i < q.size(); i++) q[i] = static_cast<float>(i * 7919 % 1001) / 500 - 1;
    for (int64_t t = 0; t < tokens; t++)
      for (int64_t h = 0; h < group; h++) {
        const int64_t at = (t * group + h) * form.head_dim;
        rows.push_back({q.data() + at, out.data() + at, 0, first_end + t});
      }
  }
  std::vector<float> q, out;
  Memory scratch;
  std::vector<AttentionRow> rows;
};

void decode(benchmark::State& state, const AttentionOps& ops, KvFormat kv, int head_dim, int64_t group) {
  const AttentionForm form{kv, head_dim, 0.1f, 0};
  constexpr int64_t kPositions = 8192;
  const int64_t heads = (256 << 20) / (kPositions * head_dim * 2 * form.layout().element_bytes());
  const Caches caches(form, heads, kPositions);
  Rows rows(form, 1, group, kPositions);
  for (auto _ : state)
    for (int64_t h = 0; h < heads; h++)
      ops.attend({form, rows.rows, caches.pages.data() + h * caches.blocks}, rows.scratch.data.get());
  state.SetBytesProcessed(state.iterations() * heads * caches.blocks * form.layout().bytes());
}

void prompt(benchmark::State& state, const AttentionOps& ops, KvFormat kv, int head_dim, int64_t group) {
  const AttentionForm form{kv, head_dim, 0.1f, 0};
  const Caches caches(form, 1, 512);
  Rows rows(form, 64, group, 449);
  for (auto _ : state) ops.attend({form, rows.rows, caches.pages.data()}, rows.scratch.data.get());
  const double products =
      64.0 * group * 480 * head_dim * (kv == KvFormat::int8 ? 3 : 2);  // q.k, and two bytes of p by V
  state.counters["ops/s"] = benchmark::Counter(2 * products, benchmark::Counter::kIsIterationInvariantRate);
}

const bool kRegistered = [] {
  const auto levels = available_isas(cpu_features());
  for (const AttentionOpsRow& row : attention_ops_table()) {
    if (std::ranges::find(levels, row.needs) == levels.end() || row.needs == Isa::generic) continue;
    for (const KvFormat kv : {KvFormat::int8, KvFormat::f16})
      for (const int head_dim : {64, 128})
        for (const int64_t group : {1, 4}) {
          const std::string name = std::string(row.name) + (kv == KvFormat::int8 ? "/int8" : "/f16") + "/head" +
                                   std::to_string(head_dim) + "/group" + std::to_string(group);
          benchmark::RegisterBenchmark((name + "/decode").c_str(),
                                       [=, &row](benchmark::State& s) { decode(s, *row.ops, kv, head_dim, group); });
          benchmark::RegisterBenchmark((name + "/prompt").c_str(),
                                       [=, &row](benchmark::State& s) { prompt(s, *row.ops, kv, head_dim, group); });
        }
  }
  return true;
}();

}  // namespace
}  // namespace onw
