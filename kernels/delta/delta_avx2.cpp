#include "kernels/delta/delta_impl.h"
#include "kernels/simd_avx2.h"

namespace onw {

constexpr DeltaOps delta_ops_avx2 = delta::Kernels<Avx2>::table();

}  // namespace onw
