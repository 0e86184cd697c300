// What OpenVINO keeps for itself, which no property of it tells: weights packed anew, what passes between the layers of
// a graph, its own code. Measured beside it, for 512 tokens: SmolLM2-135M (q4g32m) 538 MB at most, 544 MB told; for 64
// tokens: 1b (q4g128) 1.5 GB, 1.4 GB told (Xeon, OpenVINO 2026.4, 2026-11).
#pragma once

#include <cstdint>

#include "passes/cut.h"
#include "targets/weights.h"

namespace onw::openvino {

// Of all weights of the program as a device of OpenVINO's holds them, for one number of rows: codes as they are, scales
// in F32, minima in F32 twice (a constant and its packed form), plain matrices in F32. The table that the host looks up
// is not among them.
int64_t packed_weight_bytes(const Program& program, const WeightSet& weights);

// Of the values inside the graphs, for one row: each compiled graph has room for its own.
int64_t inner_row_bytes(const CutFunction& cut);

// The library's code, its threads and its own bookkeeping; and what each compiled graph adds.
inline constexpr int64_t kLibraryBytes = 110'000'000, kGraphBytes = 1'500'000;

// Of the stored weights.
struct WeightBytesByPlace {
  int64_t graphs = 0;   // as they lie
  int64_t experts = 0;  // which stay where they are
};
WeightBytesByPlace bytes_by_place(const Program& program, const WeightSet& weights);

}  // namespace onw::openvino
