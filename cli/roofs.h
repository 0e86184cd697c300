// How fast this machine can read memory and multiply small integers: the roofs that speeds are a share of.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "kernels/isa.h"

namespace onw::cli {

struct Roofs {
  double read_bytes_per_s = 0;
  double ops_per_s = 0;         // INT8; a multiplication and an addition are two
  double vector_ops_per_s = 0;  // without tiles (AMX), where the level has them; else the same
  int threads = 0;
  int64_t buffer_bytes = 0;  // what was read, over and over; larger than the caches where memory allows
};

// Takes about `seconds` for each roof; the best of several rounds counts. In huge pages, as weights are.
Roofs measure_roofs(const ThreadPlan& threads, Isa isa, double seconds);

}  // namespace onw::cli
