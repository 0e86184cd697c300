// The roofs that speeds are measured against: how fast memory can be read, how many INT8 operations a second there are.
// The loops are timed by their caller, on as many threads as it likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace onw {

// Reads every byte once (whole 256-byte pieces), with the best loads and the prefetch of the matmul kernels. Returns
// what depends on the bytes, so that nothing can be left out.
uint64_t roof_read(std::span<const std::byte> memory, Isa isa);

// Runs `iterations` rounds of the level's INT8 dot product on registers, without a wait in between. Returns the
// operations done: a multiplication and an addition count as two.
int64_t roof_dot(int64_t iterations, Isa isa);

}  // namespace onw
