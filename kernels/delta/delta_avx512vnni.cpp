#include "kernels/delta/delta_impl.h"
#include "kernels/simd_avx512.h"

namespace onw {

constexpr DeltaOps delta_ops_avx512vnni = delta::Kernels<Avx512>::table();

}  // namespace onw
