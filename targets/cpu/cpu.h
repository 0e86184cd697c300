// The CPU target: a Program compiled to fused kernels over planned memory, on every x86-64. Equal to the quantised
// reference to the bit, whatever the instruction set, the number of threads, and the other rows of a step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "graph/program.h"
#include "kernels/isa.h"
#include "targets/cpu/thread_table.h"
#include "targets/executable.h"
#include "targets/weights.h"

namespace onw {

struct CpuOptions {
  KvFormat kv = KvFormat::int8;
  Isa isa = Isa::generic;
  int threads = 1;
  std::vector<int> cpus;  // one a thread, fastest first; empty: threads may roam
  int fast_threads = 0;   // how many of the threads are on the fastest cores; 0: all are alike
  int max_step_rows = 512;
  int64_t max_context = 0;  // 0: the model's

  // Of another target of the same thread, made for these threads, so that they do not spin against each other; null:
  // one of its own.
  std::shared_ptr<ThreadPool> pool = {};

  // How many threads steps of few rows take: what is known, and who hears of what is measured.
  cpu::ThreadTable::Choices thread_choices{};
  std::function<void(const cpu::ThreadTable::Choices&)> on_thread_choices = {};
};

// `program` as a family makes it, its formats bound: activations are quantised, products merged and steps fused here.
// The weights must be in tiles (targets/cpu/tiled_weights.h, or the cache store). Errors: missing_tensor, unsupported,
// out_of_memory.
Result<std::unique_ptr<Executable>> make_cpu(const Program& program, WeightSet weights, const CpuOptions& options = {});

// The graph that make_cpu runs, for `inspect --graph`; and its steps and memory, for `inspect --plan`.
Program cpu_program(const Program& program, const WeightSet& weights, KvFormat kv);
Result<std::string> print_cpu_plan(const Program& program, const WeightSet& weights, const CpuOptions& options);

}  // namespace onw
