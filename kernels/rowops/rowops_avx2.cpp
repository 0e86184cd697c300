#include "kernels/rowops/rowops_impl.h"
#include "kernels/simd_avx2.h"

namespace onw {

constexpr RowOps row_ops_avx2 = rowops::Kernels<Avx2>::table();

}  // namespace onw
