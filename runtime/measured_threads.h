// Measured tables of threads, kept among what can be made again: by model, CPU, instruction set and number of threads.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/topology.h"
#include "kernels/isa.h"
#include "targets/cpu/thread_table.h"

namespace onw {

class MeasuredThreads {
 public:
  // `weights_digest` tells models apart.
  MeasuredThreads(const std::filesystem::path& cache, std::string_view weights_digest, Isa isa, const ThreadPlan& plan);

  // What was kept; nothing where there is nothing readable.
  cpu::ThreadTable::Choices read() const;

  // Keeps it; a cache that cannot be written costs a measurement next time, and nothing else.
  void write(const cpu::ThreadTable::Choices& choices) const;

 private:
  std::filesystem::path file_;
};

}  // namespace onw
