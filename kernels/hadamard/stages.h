// The kernels of the transform: from z to the sums of all stages, in place, for one block.
#pragma once

#include <cstdint>

namespace onw::hadamard_kernels {

// `z` holds `block` floats, a power of two.
void stages_generic(float* z, int64_t block);
void stages_avx2(float* z, int64_t block);        // block >= 8
void stages_avx512vnni(float* z, int64_t block);  // block >= 16

}  // namespace onw::hadamard_kernels
